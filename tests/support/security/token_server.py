"""An identity provider for tests: a token endpoint for client credentials, and the keys that sign its tokens."""

from __future__ import annotations

import json
import ssl
import threading
import time
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

_KEY = ec.generate_private_key(ec.SECP256R1())
KEYS = json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(_KEY.public_key())), "kid": "k"}]})


def new_token(user: str, seconds: float = 3600, **claims: object) -> str:
    """Return a signed token of a user that is valid for so long."""
    now = int(time.time())
    values = {"sub": user, "iat": now, "exp": now + int(seconds), **claims}
    return jwt.encode(values, _KEY, algorithm="ES256", headers={"kid": "k"})


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a client has closed its connection."""


class TokenServer:
    """The server, used as `with TokenServer(…)`. A client's secret is its id with `-secret`.

    `requests`: the form of each request for a token. `reads`: how often the keys were read. `seconds`: the life of a
    token. `answers`: the statuses and bodies of the next answers, in the place of a token. While `is_silent` is set, no
    request for a token is answered. `tls`: a context with a certificate of 127.0.0.1, for https.
    """

    def __init__(self, seconds: float = 3600, tls: ssl.SSLContext | None = None) -> None:
        self.seconds = seconds
        self._tls = tls
        self.requests: list[str] = []
        self.reads = 0
        self.answers: list[tuple[int, str]] = []
        self.is_silent = threading.Event()
        self._released = threading.Event()
        self._server: _Server | None = None
        self.port = 0

    @property
    def token_url(self) -> str:
        """The address of the token endpoint."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/token"

    @property
    def keys_url(self) -> str:
        """The address of the key set."""
        return f"http://127.0.0.1:{self.port}/keys"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self.stop()

    def start(self) -> None:
        """Serve, on the former port after `stop`."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.reads += 1
                self._answer(200, KEYS)

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._answer(*owner.answer(form, self.headers.get("Authorization", "")))

            def _answer(self, status: int, body: str) -> None:
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, form: str, authorization: str) -> tuple[int, str]:
        """Return status and body for a request."""
        self.requests.append(form)
        if self.is_silent.is_set():
            self._released.wait(60)
        if self.answers:
            return self.answers.pop(0)
        user, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if secret != f"{user}-secret":
            return 401, json.dumps({"error": "invalid_client", "error_description": "no such one"})
        return 200, json.dumps({"access_token": new_token(user, self.seconds)})
