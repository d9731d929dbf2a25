"""Login modules of Kafka's `sasl.jaas.config` keys, and files with such modules for ZooKeeper.

The format is `MODULE FLAG NAME="VALUE" …;`, in a file `SECTION { MODULE FLAG NAME="VALUE" …; };`. An error text
contains no part of a value, because values are passwords.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
"""The login module of ZooKeeper's DIGEST-MD5."""
MODULES: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTHBEARER_MODULE,
}
"""The mechanisms that a broker can serve, each with its login module."""
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_EXAMPLE: Final = 'expected: MODULE required NAME="VALUE" …;'
_SECTION: Final = 'SECTION { MODULE required NAME="VALUE" …; };'
_USER_PREFIX: Final = "user_"
_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<quoted> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
  | (?P<word> [A-Za-z_$\u00a0-\U0010ffff][\w$.\-\u00a0-\U0010ffff]* )
  | (?P<sign> [=;{}] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAME_ENDS: Final = (["sign", "quoted"], ["sign", "word"])


class InvalidJaas(ValueError):
    """A JAAS string cannot be read. The text says why, without any value of the string."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module with its options. `options` may hold passwords, so they are not in `repr`."""

    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def plain_users(self) -> dict[str, str]:
        """Return the users that a listener with PLAIN accepts: name -> password, from the options `user_NAME`."""
        return self.users if self.module == PLAIN_MODULE else {}

    @property
    def users(self) -> dict[str, str]:
        """Return the passwords of the options `user_NAME`, by name."""
        return {
            name.removeprefix(_USER_PREFIX): password
            for name, password in self.options.items()
            if name.startswith(_USER_PREFIX)
        }


class _Token(NamedTuple):
    kind: str
    text: str


def parse(text: str) -> JaasEntry:
    """Return the only login module of a JAAS string. Raises InvalidJaas."""
    entries = _parse_entries(_tokens(text))
    if not entries:
        raise InvalidJaas(f"names no login module; {_EXAMPLE}")
    if len(entries) != 1:
        raise InvalidJaas(f"contains {len(entries)} login modules, must contain exactly one")
    return entries[0]


def parse_section(text: str, section: str) -> JaasEntry | None:
    """Return the only login module of a section of a file; None if there is no such section. Raises InvalidJaas."""
    entries = parse_file(text).get(section)
    if entries is not None and len(entries) != 1:
        raise InvalidJaas(f"must contain one section {section} with one login module")
    return entries[0] if entries else None


def parse_file(text: str) -> dict[str, list[JaasEntry]]:
    """Return the login modules of each section of a file. Raises InvalidJaas, also if two sections have one name."""
    tokens = _tokens(text)
    found: dict[str, list[JaasEntry]] = {}
    while tokens:
        end = next((i for i, token in enumerate(tokens) if token == ("sign", "}")), None)
        if end is None or len(tokens) < 3 or tokens[1] != ("sign", "{"):
            raise InvalidJaas(f"has no section; expected: {_SECTION}")
        if tokens[end + 1 : end + 2] != [("sign", ";")]:
            raise InvalidJaas("has a section that does not end with };")
        section = tokens[0].text
        if section in found:
            raise InvalidJaas(f"must contain one section {section}")
        found[section] = _parse_entries(tokens[2:end])
        tokens = tokens[end + 2 :]
    return found


def format_entry(entry: JaasEntry) -> str:
    """Return the JAAS string of a login module, which `parse` reads."""
    options = "".join(f' {name}="{_escaped(value)}"' for name, value in entry.options.items())
    return f"{entry.module} required{options};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def parse_for(mechanism: str, text: str) -> JaasEntry:
    """Return the login module of a JAAS string, which must be the module of this mechanism. Raises InvalidJaas."""
    entry = parse(text)
    expected = MODULES[mechanism]
    if entry.module != expected:
        raise InvalidJaas(f"names another login module than {expected}, the one of {mechanism}")
    return entry


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidJaas(
                f"contains an unexpected character at position {position}; values must be in quotes"
            )
        kind = str(match.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, _value(kind, match.group())))
        position = match.end()
    return tokens


def _value(kind: str, text: str) -> str:
    return _ESCAPE.sub(_unescape, text[1:-1]) if kind == "quoted" else text


def _unescape(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _ESCAPED.get(escape, escape)


def _parse_entries(tokens: list[_Token]) -> list[JaasEntry]:
    entries = []
    while tokens:
        end = next((i for i, token in enumerate(tokens) if token == ("sign", ";")), None)
        if end is None:
            raise InvalidJaas("does not end with a semicolon")
        entries.append(_parse_entry(tokens[:end]))
        tokens = tokens[end + 1 :]
    return entries


def _parse_entry(tokens: list[_Token]) -> JaasEntry:
    if len(tokens) < 2 or tokens[0].kind == "sign" or tokens[1].text.lower() not in FLAGS:
        flags = ", ".join(sorted(FLAGS))
        raise InvalidJaas(
            f"has no control flag after the login module (one of {flags}); {_EXAMPLE}"
        )
    return JaasEntry(tokens[0].text, _options(tokens[2:]))


def _options(tokens: list[_Token]) -> dict[str, str]:
    options: dict[str, str] = {}
    for start in range(0, len(tokens), 3):
        name, *rest = tokens[start : start + 3]
        if name.kind == "sign" or [token.kind for token in rest] not in _NAME_ENDS:
            after = f"after option {list(options)[-1]!r}" if options else "after the control flag"
            raise InvalidJaas(f'has no NAME="VALUE" {after}; values must be in quotes')
        options[name.text] = rest[1].text
    return options
