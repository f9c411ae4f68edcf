"""What people may ask of the service, the same for the command line, HTTP and the board."""
