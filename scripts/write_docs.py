"""Writes the pages of docs/ that say what the code says: configuration.md, protocol.md, conformance.md.

    .venv/bin/python scripts/write_docs.py

Invariant, kept by tests/test_tidy.py: the committed pages are what this writes.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import sys
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from minikafka.base.config import BrokerConfig, ClusterConfig, TopicConfig
from minikafka.base.keys import INT_MAX, LONG_MAX, Key, Kind
from minikafka.broker import apis
from minikafka.broker.dynamic_config import DYNAMIC, THROTTLES
from minikafka.wire.versions import NAMES, SERVED, is_flexible

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TESTS = str(ROOT / "tests")
GENERATED = "<!-- Written by scripts/write_docs.py from the code; edit the code. -->\n"

CONFIGURATION = """\
# Configuration

{generated}
Every key is Kafka's, with the type, default and range of Kafka 3.9, but for `minikafka.cluster.secret`.
A key that is not here, or a value out of range, is an error that names the nearest key or the range.
Keys that stand for Kafka features that do not exist here yet are left out rather than ignored; topic
keys without an effect yet are checked and stored.

## A cluster: `cluster.toml`

`minikafka up --config cluster.toml` starts brokers 1 … N from it. `[broker]` holds keys for all of
them, `[broker.N]` for one; `broker.id`, `listeners`, `log.dirs` and `zookeeper.connect` are given out
by the cluster. In TOML a dotted key needs no quotes, `log.segment.bytes = 1_048_576`.

{cluster}

## A broker: `minikafka broker --config FILE`

The file has one table, `[broker]`, of these keys. Listeners that other machines can reach are allowed
and warned about: nothing is encrypted, and nobody is asked who they are.

A *dynamic* key can also be changed while brokers run, for one of them or for all: by
`minikafka configs set KEY=VALUE --broker ID` (or `--brokers-default`), or a client's AlterConfigs. The
others are refused there: they take a restart.

{broker}

These can only be set while brokers run, not in the file:

{dynamic_only}

## A topic

Set when a topic is created (`minikafka topics create … --config KEY=VALUE`); what is not set comes
from the broker's key. Each can be changed while the topic is in use, by
`minikafka configs set KEY=VALUE --topic NAME` or a client's AlterConfigs.

{topic}
"""

PROTOCOL = """\
# Protocol

{generated}
One listener per broker speaks Kafka's protocol to clients and to the followers of other brokers. Below
is what ApiVersions answers, and what each family of APIs does and knowingly ignores.

A request that is longer than `socket.request.max.bytes`, is cut short, or names an API or version that
is not served ends the connection; ApiVersions of a later version is answered with the table. Nothing is
allocated for a length or a count before the bytes behind it have come.

{table}

The control plane (`LeaderAndIsr`, `UpdateMetadata`, `StopReplica`, `ControlledShutdown`) is not part of
it: those requests are signed msgpack over HTTP on a listener of their own (`minikafka/rpc`).

{families}
"""

CONFORMANCE = """\
# Conformance

{generated}
What the controller and the replicas around it must do, row by row, and the tests that prove each: a test
names its rows with `@pytest.mark.row("D5", …)`. The rows are in `tests/conformance/rows.toml`. The suite
fails when a row that is not put off has no test that passed (`tests/test_conformance.py`).

{counts}

{groups}
"""


def configuration() -> str:
    """The text of configuration.md."""
    return CONFIGURATION.format(
        generated=GENERATED,
        cluster=_key_table(ClusterConfig.keys()),
        broker=_key_table(BrokerConfig.keys(), dynamic=DYNAMIC),
        dynamic_only=_key_table(THROTTLES),
        topic=_key_table(TopicConfig.keys(), with_synonyms=True),
    )


def protocol() -> str:
    """The text of protocol.md."""
    rows = [
        (
            NAMES[api],
            str(api),
            f"{low}-{high}" if low != high else str(low),
            ", ".join(_flexible(api, low, high)) or "none",
        )
        for api, (low, high) in sorted(SERVED.items())
    ]
    families = [_family(name) for _, name, _ in pkgutil.iter_modules(apis.__path__)]
    return PROTOCOL.format(
        generated=GENERATED,
        table=_table(("API", "key", "versions", "flexible from"), rows),
        families="\n\n".join(families),
    )


def conformance() -> str:
    """The text of conformance.md."""
    if TESTS not in sys.path:
        sys.path.insert(0, TESTS)
    rows = importlib.import_module("support.conformance_rows")
    table, claims = rows.catalogue(), rows.claims()
    proved = sum(row in claims for row in table)
    later = sum(row.later is not None and row.id not in claims for row in table.values())
    groups = [
        f"## {title}\n\n" + _table(("row", "what", "tests", "status"), map(_row_cells, members))
        for title, members in itertools.groupby(
            ((row, claims.get(row.id, ())) for row in table.values()), lambda pair: pair[0].group
        )
    ]
    return CONFORMANCE.format(
        generated=GENERATED,
        counts=f"{len(table)} rows: {proved} proved, {len(table) - proved - later} open, {later} later.",
        groups="\n\n".join(groups),
    )


def _row_cells(pair: tuple[Any, tuple[str, ...]]) -> list[str]:
    row, tests = pair
    status = f"proved by {len(tests)} test{'s'[: len(tests) > 1]}"
    if not tests:
        status = "open" if row.later is None else f"later: {row.later}"
    return [row.id, row.what, "<br>".join(f"`{test}`" for test in tests), status]


def _family(name: str) -> str:
    """The block that opens the module, under its name."""
    module = importlib.import_module(f"{apis.__name__}.{name}")
    return f"## `apis/{name}.py`\n\n{(module.__doc__ or '').strip()}"


def _flexible(api: int, low: int, high: int) -> list[str]:
    return [str(version) for version in range(low, high + 1) if is_flexible(api, version)][:1]


def _key_table(
    keys: Mapping[str, Key], *, dynamic: Container[str] = (), with_synonyms: bool = False
) -> str:
    head = ["key", "type", "default", "values", "meaning"]
    rows = [[f"`{name}`", *_key_cells(key)] for name, key in keys.items()]
    if dynamic:
        head.append("dynamic")
        for row, name in zip(rows, keys, strict=True):
            row.append("yes" if name in dynamic else "")
    if with_synonyms:
        head.append("broker key")
        for row, key in zip(rows, keys.values(), strict=True):
            row.append(", ".join(f"`{name}`" for name, _ in key.synonyms))
    return _table(head, rows)


def _key_cells(key: Key) -> list[str]:
    default = "(none)" if key.default in (None, "", ()) else f"`{key.text(key.default)}`"
    if key.kind in (Kind.INT, Kind.LONG) and key.default in (INT_MAX, LONG_MAX):
        default = "no limit"
    return [key.kind.name.lower(), default, key.bounds(), key.doc]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PAGES = {
    "configuration.md": configuration,
    "protocol.md": protocol,
    "conformance.md": conformance,
}


def main() -> None:
    """Write the pages."""
    for name, text in PAGES.items():
        (DOCS / name).write_text(text())


if __name__ == "__main__":
    main()
