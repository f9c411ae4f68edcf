import json
import threading
import unittest
from urllib.request import urlopen

from greeter.server import find_pages, respond, serve


class ServerTest(unittest.TestCase):
    def test_an_unknown_page_is_not_found(self):
        status, answer = respond(find_pages(), "/nowhere")
        self.assertEqual(404, status)
        self.assertIn("/nowhere", answer["error"])

    def test_the_version_is_answered_over_http(self):
        with serve(0) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                with urlopen(f"http://127.0.0.1:{server.server_port}/version", timeout=10) as answer:
                    self.assertEqual("greeter", json.load(answer)["service"])
            finally:
                server.shutdown()
                thread.join()
