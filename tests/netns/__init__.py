"""Hosts that are network and process namespaces of this machine: they see neither each other's processes nor memory."""
