"""Names and numbers that come from outside, parsed strictly: from ZooKeeper, files, requests and command lines.

A znode or file may contain anything, and Python's own parsers are too lenient. `int` accepts the digits of every
script, `1_000`, spaces and signs. `json` accepts `NaN`, repeated fields, other encodings than UTF-8, and half of a
surrogate pair, which cannot be encoded again. Invariant: a returned name or number can be part of a path and be
sent to any client. Any other input raises ValueError with a text that names the fault. The caller adds the path of
the node or file to this text. This module does no I/O.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn

from minikafka.base.config.keys import INT_MAX, LONG_MAX
from minikafka.base.model import BrokerId, TopicPartition

TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
"""Kafka's rule for topic names, which become names of directories and znodes."""
GROUP_TOPIC: Final = "__consumer_offsets"
"""Kafka's internal topic with the groups and their committed offsets."""
TRANSACTION_TOPIC: Final = "__transaction_state"
"""Kafka's internal topic with the transactional ids and their transactions."""
INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})
"""The topics that Kafka reserves for its coordinators. Clients may read these topics, but not write to them."""
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_CLUSTER_ID: Final = re.compile(r"[!-~]{1,255}")
_OFFSET: Final = re.compile(r"[0-9]{20}")
_DELETED: Final = re.compile(r"[a-zA-Z0-9._-]+\.[0-9a-f]{32}-delete")
_FUTURE: Final = re.compile(r"([a-zA-Z0-9._-]+)\.[0-9a-f]{32}-future")
_TOPIC_ID_BYTES: Final = 16
_BYTE_ORDER_MARK: Final = "\ufeff"
_SHOWN: Final = 60
"""Number of characters of a malformed value that an error shows."""


def is_internal(topic: str) -> bool:
    """True if the name begins with two underscores, as the names of topics that no user has made."""
    return topic.startswith("__")


def ids(brokers: Iterable[BrokerId]) -> str:
    """Return broker ids as text, for example `1,2,3`."""
    return ",".join(map(str, brokers))


def listed(partitions: Iterable[TopicPartition], most: int) -> str:
    """Return the partitions as text: at most `most` partitions of users' topics, and the numbers of all others.

    Partitions of internal topics are only counted, unless there is only one: a cluster has 50 of them.
    """
    names = sorted(partitions)
    own = [str(tp) for tp in names if not is_internal(tp.topic)]
    internal = [tp for tp in names if is_internal(tp.topic)]
    parts = own[:most]
    if len(own) > most:
        parts.append(f"{len(own) - most} more")
    if len(internal) == 1:
        parts.append(str(internal[0]))
    elif internal:
        topics = ", ".join(sorted({tp.topic for tp in internal}))
        parts.append(f"{len(internal)} partitions of {topics}")
    is_open = len(own) > most or len(internal) > 1
    if is_open and len(parts) > 1:
        return f"{', '.join(parts[:-1])} and {parts[-1]}"
    return ", ".join(parts)


def parse_number(text: str, high: int = INT_MAX) -> int:
    """Return the decimal number in the text: from 0 to `high`, without sign, spaces or leading zeros."""
    if not _NUMBER.fullmatch(text) or int(text) > high:
        raise ValueError(f"{text[:_SHOWN]!a} is not a whole number from 0 to {high}")
    return int(text)


def parse_topic(name: object) -> str:
    """Return the name if Kafka allows it as a topic name."""
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name):
        raise ValueError(
            f"{str(name)[:_SHOWN]!a} is not a topic name of at most 249 letters, digits, '.', '_' and '-'"
        )
    return name


def parse_topic_id(text: str) -> bytes:
    """Parse a topic id in the form that `topic_id_text` returns; return its 16 bytes."""
    try:
        topic_id = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise ValueError(f"{text[:_SHOWN]!a} is not a topic id of 22 characters of URL-safe base64")
    return topic_id


def parse_cluster_id(text: object) -> str:
    """Return the cluster id, which is sent in HTTP headers: 1 to 255 printable ASCII characters without spaces."""
    if not isinstance(text, str) or not _CLUSTER_ID.fullmatch(text):
        raise ValueError(
            f"{str(text)[:_SHOWN]!a} is not a cluster id of 1 to 255 ASCII characters without spaces"
        )
    return text


def parse_text(text: object) -> str:
    """Return the text if UTF-8 can encode it. Half of a surrogate pair, which JSON allows, is refused."""
    if not isinstance(text, str):
        raise ValueError(f"{str(text)[:_SHOWN]!a} is not a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text[:_SHOWN]!a} is not valid Unicode") from None
    return text


def parse_json(data: bytes | str) -> dict[str, Any]:
    """Parse a JSON object, and return its fields.

    Raises ValueError for anything else, and the errors of `read_json`. A returned string may contain half of a
    surrogate pair, which `parse_text` refuses.
    """
    fields = read_json(data)
    if type(fields) is not dict:
        raise ValueError("not a JSON object")
    return fields


def read_json(data: bytes | str) -> Any:
    """Parse a JSON document, in UTF-8 if it is bytes.

    Raises ValueError with one line that says what is wrong and, for errors of syntax, where. A field that is named
    twice, NaN, an infinity, and a number or a nesting beyond Python's limits are refused too.
    """
    try:
        text = (data.encode() if isinstance(data, str) else data).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not JSON in UTF-8: byte {error.start + 1} is invalid") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"not JSON: character {error.start + 1} is invalid") from None
    if text.startswith(_BYTE_ORDER_MARK):
        raise ValueError("not JSON: it begins with a byte order mark; save it in UTF-8 without one")
    try:
        return json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        reason = f"{error.msg[:1].lower()}{error.msg[1:]}"
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        raise ValueError(f"not JSON: {reason} at {line}column {error.colno}") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    except _NotJson as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError:  # of int(), which does not name its text
        digits = sys.get_int_max_str_digits()
        raise ValueError(f"the JSON has a number of more than {digits} digits") from None


class _NotJson(ValueError):
    """Python's parser accepts a document that is not JSON."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(name, _), *_] = Counter(name for name, _ in pairs).most_common(1)
        raise _NotJson(f"the field {name[:_SHOWN]!a} is given twice")
    return fields


def _refuse(constant: str) -> NoReturn:
    raise _NotJson(f"{constant} is not a JSON number")


def parse_replica_directory(name: str) -> TopicPartition:
    """Return the partition of the replica in a directory of this name, such as `topic-0`."""
    topic, _, partition = name.rpartition("-")
    return TopicPartition(parse_topic(topic), parse_number(partition))


def is_deleted_replica(name: str) -> bool:
    """True if the directory name is that of a replica whose deletion has begun (`…-delete`, as in Kafka)."""
    return _DELETED.fullmatch(name) is not None


def parse_future_directory(name: str) -> TopicPartition | None:
    """Return the partition of the copy in a directory of this name (`topic-0.<id>-future`, as in Kafka).

    Return None for the directory of anything else.
    """
    match = _FUTURE.fullmatch(name)
    if match is None:
        return None
    with suppress(ValueError):
        return parse_replica_directory(match[1])
    return None


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """Return the sorted offsets of log files whose names are 20 digits and this suffix; ignore other names."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    offsets = (int(stem) for stem in stems if _OFFSET.fullmatch(stem))
    return sorted(offset for offset in offsets if offset <= LONG_MAX)
