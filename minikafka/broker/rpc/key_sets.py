"""Reads a JSON Web Key Set from an HTTP address."""

from __future__ import annotations

from typing import Final

import aiohttp

_BYTES_MAX: Final = 1024 * 1024
_TIMEOUT_SECONDS: Final = 10
_OK: Final = 200


async def fetch_text(url: str) -> str:
    """Return the text at an address. Raises OSError, also if the answer is no text of at most 1 MiB."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            if answer.status != _OK:
                raise OSError(f"HTTP status {answer.status}")
            body = await answer.content.read(_BYTES_MAX + 1)
            while len(body) <= _BYTES_MAX and (more := await answer.content.read(_BYTES_MAX)):
                body += more
    except aiohttp.ClientError as error:
        raise OSError(str(error) or type(error).__name__) from error
    if len(body) > _BYTES_MAX:
        raise OSError(f"the answer is longer than {_BYTES_MAX} bytes")
    return body.decode(errors="replace")
