"""A bucket on a server of S3, which MINIKAFKA_S3_ENDPOINT names, and a proxy that fails and delays requests.

`scripts/object-storage` starts a server and sets the variable.
"""

from __future__ import annotations

import http.client
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

import pytest
from pyarrow import fs

VARIABLE: Final = "MINIKAFKA_S3_ENDPOINT"
ENDPOINT: Final = os.environ.get(VARIABLE, "")
BUCKET: Final = "minikafka-tests"

needs_s3 = pytest.mark.skipif(
    not ENDPOINT, reason=f"{VARIABLE} names no server of S3, such as http://127.0.0.1:9000"
)


def options(endpoint: str = ENDPOINT) -> dict[str, str]:
    """Return the options of a store on the server, or on a proxy at another address."""
    return {
        "access_key_id": "minikafka",
        "secret_access_key": "minikafka",
        "region": "us-east-1",
        "endpoint": endpoint,
    }


def file_system() -> fs.S3FileSystem:
    """Return a client of the server that shares no code with the store. It has created the bucket."""
    found = fs.S3FileSystem(
        access_key="minikafka",
        secret_key="minikafka",
        region="us-east-1",
        endpoint_override=ENDPOINT,
        allow_bucket_creation=True,
    )
    found.create_dir(BUCKET)
    return found


def keys(prefix: str) -> list[str]:
    """Return the keys of the bucket below a prefix, without the prefix, sorted."""
    place = f"{BUCKET}/{prefix}".rstrip("/")
    found = file_system().get_file_info(fs.FileSelector(place, recursive=True))
    return sorted(
        one.path.removeprefix(f"{place}/") for one in found if one.type == fs.FileType.File
    )


class _Server(ThreadingHTTPServer):
    """A server of which clients may die in the middle of a response."""

    def handle_error(self, *_: object) -> None:
        """Print nothing."""


class FailingProxy:
    """A proxy that fails every request whose number is a multiple of `every`, in three ways in turn.

    The server is busy (503); the connection ends before the request was sent on, or after the server has carried it
    out. `delay_s`: seconds before each response.
    """

    def __init__(self, every: int = 10, delay_s: float = 0.0) -> None:
        self._every = every
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self.requests = 0
        self.failed = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if self.raw_requestline and self.parse_request():
                    proxy.serve(self)
                else:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def _way(self) -> int:
        """Return how to fail this request: 0 to 2; -1 to serve it."""
        with self._lock:
            self.requests += 1
            if self.requests % self._every:
                return -1
            self.failed += 1
            return self.failed % 3

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Serve one request, or fail it."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        way = self._way()
        if way == 0:
            request.send_response(503)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if way == 1:
            request.close_connection = True
            return
        response, data = self._forward(request, body)
        threading.Event().wait(self._delay_s)
        if way == 2:
            request.close_connection = True
            return
        request.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("connection", "date", "server", "transfer-encoding"):
                request.send_header(name, value)
        if response.getheader("Content-Length") is None and response.status != 204:
            request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _forward(self, request, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        target = urlsplit(ENDPOINT)
        connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            connection.request(request.command, request.path, body, dict(request.headers))
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def close(self) -> None:
        """Stop the proxy."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
