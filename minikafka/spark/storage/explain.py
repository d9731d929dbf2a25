"""Sentences for what a store has refused: the place, the reason and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError

_CODE: Final = re.compile(r"<Code>(?P<code>\w+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>(?P<text>[^<]+)</Message>")
_ADDRESS: Final = re.compile(r"https?://[^/\s\"']+")
NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
"""What S3, Azure and Google say if there is no bucket, each with the status of an absent object."""
EXPIRED: Final = re.compile(r"ExpiredToken|TokenExpired|RequestExpired|InvalidToken")
"""What stores say about credentials that have expired, with the status of a wrong request."""
NO_ANSWER: Final = re.compile(
    r"[Cc]onnection refused|dns error|[Cc]onnectError|trying to connect|error sending request|operation timed out"
    r"|NETWORK_CONNECTION|curlCode"
)
"""Words in the libraries' errors about a request that got no response."""
_NAMES: Final = (
    *("endpoint", "region", "access_key_id", "secret_access_key", "session_token"),
    *("account_key", "sas_token", "service_account"),
)


class OptionNames(NamedTuple):
    """How the user names the options of a store, for messages.

    `place`: where the user sets them. `names`: the user's name of each option that a message may name.
    """

    place: str
    names: Mapping[str, str]

    @property
    def where(self) -> str:
        """The places from which the store takes an option, as the end of a sentence."""
        return f"in {self.place}, or in the environment of the driver and of the executors"


_OF_STORAGE: Final = OptionNames("the option storage", {name: name for name in _NAMES})


def names_in_storage(url: str) -> OptionNames:
    """Return the names in an option `storage` of a command, a function or a pipeline file."""
    if url.startswith("gs:"):
        return _OF_STORAGE._replace(names={**_OF_STORAGE.names, "endpoint": "base_url"})
    return _OF_STORAGE


def check_no_login(url: str, names: OptionNames | None) -> None:
    """Raise `ConfigError`, without the URI, if a login is part of a URI. A login may contain a slash.

    `names`: as `explained` has it.
    """
    scheme, _, rest = url.partition("://")
    place = rest.partition("/")[0]
    has_login = "@" in place or (":" in place and "@" in rest)
    if has_login and not scheme.lower().startswith("abfs"):
        where = (names or names_in_storage(url)).where
        raise ConfigError(
            f"a URI of {scheme}:// must have no login before the bucket: set it {where}"
        )


class _Known(NamedTuple):
    pattern: re.Pattern[str]
    text: str


def _known(pattern: str, text: str) -> _Known:
    return _Known(re.compile(pattern), text)


_REASONS: Final = (
    _known(
        r"computeMetadata|metadata\.google\.internal",
        "there are no credentials for Google: set {service_account} {where}",
    ),
    _known(
        r"metadata/identity|AZURE_CLIENT_ID",
        "there are no credentials for Azure: set {account_key} or {sas_token} {where}",
    ),
    _known(
        r"169\.254\.169\.254",
        "there are no credentials for S3: set {access_key_id} and {secret_access_key} {where}",
    ),
    _known(
        r"InvalidAccessKeyId",
        "the store does not know the access key: correct {access_key_id} {where}",
    ),
    _known(
        r"AuthenticationFailed",
        "the store refuses the key of the account: correct {account_key} or {sas_token} {where}",
    ),
    _known(
        r"invalid_grant",
        "the store does not know the account: correct {service_account} {where}",
    ),
    _known(
        r"SignatureDoesNotMatch",
        "the secret does not belong to the access key: correct {secret_access_key} {where}",
    ),
    _Known(
        EXPIRED,
        "the credentials have expired: renew {session_token} and its keys {where}",
    ),
    _known(
        r"AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraint|[Ii]ncorrectly configured region",
        "the bucket is in another region: set {region} to the region of the bucket {where}",
    ),
    _known("|".join(NO_BUCKET), "there is no such bucket: create it, or correct the URI"),
    _known(
        r"AccessDenied|ACCESS_DENIED|PermissionDenied|AuthorizationPermissionMismatch|403 Forbidden",
        "the credentials have no right to {verb} here: allow listing the bucket, and reading, writing and removing the"
        " objects below this URI",
    ),
    _known(
        r"401 Unauthorized|Unauthenticated",
        "the store refuses the credentials: correct them {where}",
    ),
    _Known(
        NO_ANSWER,
        "{address} does not answer: check {endpoint} and the network of the driver and of the executors",
    ),
    _known(
        r"SlowDown|503 Service|500 Internal|502 Bad|504 Gateway|429 Too Many",
        "the store failed too often in a row: start the command again, which continues",
    ),
)


def explained(
    url: str, name: str, verb: str, error: BaseException, options: OptionNames | None = None
) -> str:
    """Return a sentence for the error of a request. `verb`: what the request should do, such as `write`.

    `options`: how the user names the options of the store; None for those in an option `storage`.
    """
    options = options or names_in_storage(url)
    place, text = (f"{url}/{name}" if name else url), str(error)
    for reason in _REASONS:
        if reason.pattern.search(text):
            found = _ADDRESS.search(text)
            address = found[0] if found else "the store"
            words = {**options.names, "where": options.where, "verb": verb, "address": address}
            return f"{place}: {reason.text.format_map(words)}"
    return f"{place} cannot be {_DONE[verb]}: {_essence(text)}: check the URI and {options.place}"


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
