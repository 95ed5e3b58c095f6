"""A small web service. Start it with `python app.py`."""

from http.server import BaseHTTPRequestHandler, HTTPServer

import config


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{config.GREETING}\n".encode())


if __name__ == "__main__":
    HTTPServer((config.HOST, config.PORT), Hello).serve_forever()
