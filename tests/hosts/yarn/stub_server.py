"""A server in a thread, for stubs that answer requests as a manager's REST interface does."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


class StubServer:
    """Runs until closed. `answer` takes method, path, body in bytes and query, and gives a status and a text."""

    def __init__(self):
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urlsplit(self.path)
                status, text = stub.answer(self.command, url.path, body, dict(parse_qsl(url.query)))
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", text)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
