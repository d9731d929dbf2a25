"""Who may use the console: requests of its own page on this machine, with the token of its URL.

A page of another origin cannot read the token, and a name of another domain that resolves to 127.0.0.1 fails the check
of the header Host (DNS rebinding).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from minikafka.tools.console.errors import RequestRefused

TOKEN_HEADER: Final = "X-Minikafka-Token"  # noqa: S105 - the name of a header
TOKEN_BYTES: Final = 16
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_URL: Final = "open the URL that the console has printed"


def url_of(port: int, token: str) -> str:
    """Return the address of the page, with the token."""
    return f"http://127.0.0.1:{port}/?token={token}"


def check_origin(headers: Mapping[str, str], port: int) -> None:
    """Raise RequestRefused for a request that another page or another host name causes."""
    names = {f"127.0.0.1:{port}", f"localhost:{port}"}
    host = headers.get("Host", "")
    if host not in names:
        raise RequestRefused(403, f"the header Host is {host!r}, not 127.0.0.1:{port}", _URL)
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        raise RequestRefused(403, f"the request comes from {origin!r}, not from this console", _URL)


def check_token(given: str | None, token: str) -> None:
    """Raise RequestRefused unless the token is given."""
    if not given:
        raise RequestRefused(401, "the request has no token", _URL)
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise RequestRefused(403, "the token is not that of this console", _URL)
