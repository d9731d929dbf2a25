"""Principals of clients: Kafka's text `User:NAME`, and the name that a client's certificate gives.

The distinguished name of a certificate is written as Java writes it (RFC 2253), because ACLs and rules contain it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Attributes with a name in RFC 2253. Java writes all others with their number and the bytes of the value."""
_STRINGS: Final = frozenset({12, 19, 20, 22, 27, 30})
"""ASN.1 types that Java writes as text. It reads all of them as UTF-8, also BMPString."""
_SPECIAL: Final = re.compile(r'[,=+<>#;"\\]')
_EDGES: Final = re.compile(r"\A[ \r]+|[ \r]+\Z")
_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)")
_SPLIT: Final = re.compile(rf"\s*({_RULE.pattern})\s*(?:,\s*|\Z)")
_REFERENCE: Final = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<number>[0-9]+)|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})?|\\\Z"
)
_JAVA_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")


class InvalidRule(ValueError):
    """A rule of `ssl.principal.mapping.rules` cannot be read."""


class NoRuleApplies(Exception):
    """No rule of `ssl.principal.mapping.rules` applies to the name of a certificate."""


class InvalidCertificate(ValueError):
    """The bytes are no certificate in DER."""


class _Rule(NamedTuple):
    """A pattern and its replacement: texts, and numbers or names of groups. DEFAULT takes the whole name."""

    pattern: re.Pattern[str]
    replacement: tuple[str | _Group, ...]
    case: str = ""

    def apply(self, name: str) -> str | None:
        if not self.pattern.fullmatch(name):
            return None
        mapped = "".join(self._replace_all(name))
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)

    def _replace_all(self, name: str) -> Iterator[str]:
        """Yield the name with each match replaced. After an empty match, Java goes on one character later."""
        copied = position = 0
        while position <= len(name) and (match := self.pattern.search(name, position)):
            yield name[copied : match.start()]
            for part in self.replacement:
                yield part if isinstance(part, str) else match[part.key] or ""
            copied = match.end()
            position = copied + (match.start() == copied)
        yield name[copied:]


class _Group(NamedTuple):
    key: int | str


_DEFAULT: Final = _Rule(re.compile(".*", re.DOTALL), (_Group(0),))


class PrincipalRules:
    """`ssl.principal.mapping.rules`: the first rule that applies to a distinguished name gives the user's name."""

    def __init__(self, text: str) -> None:
        self._rules = tuple(_parse_rules(text.strip()))

    def principal_of(self, certificate: bytes) -> str:
        """Return the principal of a certificate in DER. Raises NoRuleApplies, InvalidCertificate."""
        return f"User:{self.name_of(subject_of(certificate))}"

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the user. Raises NoRuleApplies."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoRuleApplies(
            f"no rule of ssl.principal.mapping.rules applies to {distinguished_name!r}"
        )


def split_principal(text: str) -> tuple[str, str]:
    """Return type and name of a principal such as `User:alice`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"must have the form TYPE:NAME, for example User:alice, got {text!r}")
    return kind, name


def subject_of(certificate: bytes) -> str:
    """Return the distinguished name of a certificate's subject. Raises InvalidCertificate."""
    try:
        fields = list(_values(_only(_only(certificate, 0x30), 0x30, is_first=True)))
        subject = fields[5 if fields[0].tag == 0xA0 else 4]
        names = [_relative_name(name.content) for name in _values(subject.content)]
    except (IndexError, ValueError):
        raise InvalidCertificate("the bytes are no certificate in DER") from None
    return ",".join(reversed(names))


class _Value(NamedTuple):
    """One value of DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    all: bytes


def _values(content: bytes) -> Iterator[_Value]:
    position = 0
    while position < len(content):
        tag, size, start = content[position], content[position + 1], position + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(content[start : start + count], "big")
            start += count
        end = start + size
        if end > len(content):
            raise IndexError(end)
        yield _Value(tag, content[start:end], content[position:end])
        position = end


def _only(content: bytes, tag: int, *, is_first: bool = False) -> bytes:
    """Return the content of the only value, or of the first one, which must have this tag."""
    values = list(_values(content))
    if values[0].tag != tag or not (is_first or len(values) == 1):
        raise IndexError(tag)
    return values[0].content


def _relative_name(content: bytes) -> str:
    parts = []
    for attribute in _values(content):
        kind, value = _values(attribute.content)
        oid = _oid(kind.content)
        keyword = _KEYWORDS.get(oid)
        if keyword is None or value.tag not in _STRINGS:
            parts.append(f"{keyword or oid}=#{value.all.hex()}")
        else:
            parts.append(f"{keyword}={_escape(value.content.decode(errors='replace'))}")
    return "+".join(parts)


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escape(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\g<0>", text).replace("\0", "\\00")
    return _EDGES.sub(lambda edge: "".join(f"\\{char}" for char in edge.group()), escaped)


def _parse_rules(text: str) -> Iterator[_Rule]:
    for match in _SPLIT.finditer(text):
        rule = match.group(1)
        parsed = _RULE.match(rule)
        if parsed is None or parsed.end() != len(rule):
            raise InvalidRule(f"must be DEFAULT or RULE:PATTERN/REPLACEMENT/[LU], got {rule!r}")
        if parsed.group(1):
            yield _DEFAULT
        elif parsed.group(2) is not None:
            yield _parse_rule(rule, *parsed.group(2, 3, 4))


def _parse_rule(rule: str, pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re.compile(_JAVA_GROUP.sub("(?P<", pattern))
    except re.error as error:
        raise InvalidRule(f"has a malformed pattern in {rule!r}: {error}") from None
    return _Rule(compiled, tuple(_parse_replacement(rule, replacement, compiled)), case)


def _parse_replacement(
    rule: str, replacement: str, pattern: re.Pattern[str]
) -> Iterator[str | _Group]:
    """Yield the parts of a replacement. As in Kafka, `$4` is a text if there are only one to three groups."""
    position = 0
    for match in _REFERENCE.finditer(replacement):
        yield replacement[position : match.start()]
        position = match.end()
        escaped, number, name = match.group("escaped", "number", "name")
        if escaped:
            yield escaped
        elif name in pattern.groupindex:
            yield _Group(name)
        elif number and int(number[0]) <= pattern.groups:
            yield from _numbered(number, pattern.groups)
        elif number and pattern.groups:
            yield match.group()
        else:
            raise InvalidRule(f"has a `$` without the number or name of a group in {rule!r}")
    yield replacement[position:]


def _numbered(number: str, groups: int) -> Iterator[str | _Group]:
    """Yield the group with the longest number of an existing group, and the digits that are left."""
    length = max(n for n in range(1, len(number) + 1) if int(number[:n]) <= groups)
    yield _Group(int(number[:length]))
    yield number[length:]
