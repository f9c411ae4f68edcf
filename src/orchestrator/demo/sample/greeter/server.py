"""The server: finds the page of a path and answers with its JSON."""

import importlib
import json
import pkgutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from greeter import pages


def find_pages():
    """Every module of ``greeter.pages`` by its path."""
    found = {}
    for entry in pkgutil.iter_modules(pages.__path__):
        page = importlib.import_module(f"greeter.pages.{entry.name}")
        found[page.PATH] = page
    return found


def respond(known, target):
    """The status and the answer for a request's target such as ``/hello?name=Ada``."""
    parts = urlsplit(target)
    page = known.get(parts.path)
    if page is None:
        return 404, {"error": f"there is no page {parts.path}"}
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    try:
        return 200, page.answer(query)
    except KeyError as error:
        return 500, {"error": f"the page failed: {error}"}


def serve(port):
    """A server that listens on loopback; the caller lets it run."""

    class Handler(BaseHTTPRequestHandler):
        known = find_pages()

        def do_GET(self):
            status, answer = respond(self.known, self.path)
            body = json.dumps(answer, ensure_ascii=False).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):
            """Requests are not logged."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
