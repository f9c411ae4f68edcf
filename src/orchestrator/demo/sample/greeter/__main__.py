"""Serve until ended: ``python -m greeter``."""

import os

from greeter.server import serve

if __name__ == "__main__":
    server = serve(int(os.environ.get("GREETER_PORT", "8080")))
    print(f"greeter listens on port {server.server_port}", flush=True)
    server.serve_forever()
