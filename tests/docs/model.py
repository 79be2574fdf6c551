"""An upstream for docs/guide/proxy.md: every answer used 731 tokens. Run with a port."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("x-tokens-used", "731")
        self.send_header("content-length", "0")
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[1])), Model).serve_forever()
