"""Sentences for what a store has refused: the place, the reason and the remedy."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_CODE: Final = re.compile(r"<Code>(?P<code>\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>(?P<text>[^<]+)</Message>")
_ADDRESS: Final = re.compile(r"https?://[^/\s\"']+")
NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
"""What S3, Azure and Google say if there is no bucket, each with the status of an absent object."""
OPTION: Final = "in the option storage, or in the environment of the driver and of the executors"


EXPIRED: Final = re.compile(r"ExpiredToken|TokenExpired|RequestExpired|InvalidToken")
"""What stores say about credentials that have expired, with the status of a wrong request."""
NO_ANSWER: Final = re.compile(
    r"[Cc]onnection refused|dns error|[Cc]onnectError|trying to connect|error sending request|operation timed out"
    r"|NETWORK_CONNECTION|curlCode"
)
"""What the libraries say about a server that cannot be reached."""


class _Known(NamedTuple):
    pattern: re.Pattern[str]
    text: str


def _known(pattern: str, text: str) -> _Known:
    return _Known(re.compile(pattern), text)


_REASONS: Final = (
    _known(
        r"computeMetadata|metadata\.google\.internal",
        f"there are no credentials for Google: set service_account {OPTION}",
    ),
    _known(
        r"metadata/identity|AZURE_CLIENT_ID",
        f"there are no credentials for Azure: set account_key or sas_token {OPTION}",
    ),
    _known(
        r"169\.254\.169\.254",
        f"there are no credentials for S3: set access_key_id and secret_access_key {OPTION}",
    ),
    _known(
        r"InvalidAccessKeyId|AuthenticationFailed|invalid_grant",
        f"the store does not know the access key: correct access_key_id {OPTION}",
    ),
    _known(
        r"SignatureDoesNotMatch",
        f"the secret does not belong to the access key: correct secret_access_key {OPTION}",
    ),
    _Known(
        EXPIRED,
        f"the credentials have expired: renew session_token and its keys {OPTION}",
    ),
    _known(
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|[Ii]ncorrectly configured region",
        "the bucket is in another region: set region to the region of the bucket " + OPTION,
    ),
    _known("|".join(NO_BUCKET), "there is no such bucket: create it, or correct the URI"),
    _known(
        r"AccessDenied|ACCESS_DENIED|PermissionDenied|AuthorizationPermissionMismatch|403 Forbidden",
        "the credentials have no right to {verb} here: allow listing the bucket, and reading, writing and removing the"
        " objects below this URI",
    ),
    _known(
        r"401 Unauthorized|Unauthenticated",
        f"the store refuses the credentials: correct them {OPTION}",
    ),
    _Known(
        NO_ANSWER,
        "{address} does not answer: check endpoint and the network of the driver and of the executors",
    ),
    _known(
        r"SlowDown|503 Service|500 Internal|502 Bad|504 Gateway|429 Too Many",
        "the store failed too often in a row: start the command again, which continues",
    ),
)


def explained(url: str, name: str, verb: str, error: BaseException) -> str:
    """Return a sentence for the error of a request. `verb`: what the request should do, such as `write`."""
    place, text = (f"{url}/{name}" if name else url), str(error)
    for reason in _REASONS:
        if reason.pattern.search(text):
            found = _ADDRESS.search(text)
            address = found[0] if found else "the store"
            return f"{place}: {reason.text.format(verb=verb, address=address)}"
    return (
        f"{place} cannot be {_DONE[verb]}: {_essence(text)}: check the URI and the option storage"
    )


_DONE: Final = {
    "open": "used",
    "list": "listed",
    "read": "read",
    "write": "written",
    "remove": "removed",
}


def _essence(text: str) -> str:
    """Return what an error says: the code and message of the store, or else the first line."""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code and message:
        return f"{code['code']} ({message['text']})"
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0].strip()[:200].rstrip(".:") if lines else "unknown error"
