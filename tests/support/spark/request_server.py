"""An HTTP server on this machine that runs in threads of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class RequestServer:
    """A server that passes each request to `serve`, in a thread for each connection. `endpoint`: its URL."""

    def __init__(self, serve: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if self.raw_requestline and self.parse_request():
                    serve(self)
                else:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A server of which clients may die in the middle of a response."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Print nothing."""


def body_of(request: BaseHTTPRequestHandler) -> bytes:
    """Return the body of a request, which pyarrow's client of S3 sends in chunks."""
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline().partition(b";")[0], 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    while request.rfile.readline().strip():
        pass
    return b"".join(parts)


def respond(
    request: BaseHTTPRequestHandler,
    status: int,
    body: bytes = b"",
    headers: Sequence[tuple[str, str]] = (),
) -> None:
    """Send a response. The length of the body is added, unless a header has it."""
    request.send_response(status)
    for name, value in headers:
        request.send_header(name, value)
    if status != 204 and not any(name.lower() == "content-length" for name, _ in headers):
        request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
