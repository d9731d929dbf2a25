"""Reads the page of metrics of a secured broker."""

from __future__ import annotations

import ssl
from base64 import b64encode
from urllib.request import Request, urlopen

from support.security.certificates import Authority


def read_page(url: str, authority: Authority, credential: str = "") -> str:
    """Return the text at an address of a broker. `credential`: USER:PASSWORD, or "" for none. Raises HTTPError."""
    request = Request(url)
    if credential:
        request.add_header("Authorization", f"Basic {b64encode(credential.encode()).decode()}")
    context = ssl.create_default_context(cafile=str(authority.pem))
    with urlopen(request, context=context, timeout=30) as page:
        text: str = page.read().decode()
        return text
