"""Generates the pages of docs/ that repeat the code: configuration.md, protocol.md, conformance.md.

    .venv/bin/python scripts/write_docs.py

Invariant, checked by tests/test_tidy.py: the committed pages equal the generated ones.
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
Every key except `minikafka.…` is Kafka's, with the type, default and range of Kafka 3.9. An unknown key or
a value out of range is an error that names the nearest key or the range. Broker keys of Kafka features that
do not exist here are unknown; topic keys without an effect here are checked and stored.

## A cluster: `cluster.toml`

`minikafka up --config cluster.toml` starts brokers 1 … N from this file. `[broker]` holds keys for all
brokers, `[broker.N]` for one; the cluster itself sets `broker.id`, `listeners`, `log.dirs` and
`zookeeper.connect`. In TOML a dotted key needs no quotes: `log.segment.bytes = 1_048_576`.

{cluster}

## A broker: `minikafka broker --config FILE`

The file has one table, `[broker]`, with these keys. Listeners that other machines can reach are allowed
with a warning, since there is no encryption and no authentication.

A *dynamic* key can also be changed while brokers run, for one broker or for all, with
`minikafka configs set KEY=VALUE --broker ID` (or `--brokers-default`) or a client's AlterConfigs. Other
keys are refused there: they need a restart.

{broker}

These keys can only be set while brokers run, not in the file:

{dynamic_only}

## A topic

Set when a topic is created (`minikafka topics create … --config KEY=VALUE`); the default is the value of
the broker key. Each key can be changed while the topic is in use, with
`minikafka configs set KEY=VALUE --topic NAME` or a client's AlterConfigs.

{topic}
"""

PROTOCOL = """\
# Protocol

{generated}
One listener per broker serves Kafka's protocol to clients and to the followers on other brokers. The table
lists the versions that ApiVersions returns; below it, each family of APIs is described with the fields that
it deliberately ignores.

A request that is longer than `socket.request.max.bytes`, is truncated, or names an unsupported API or
version ends the connection; an ApiVersions request of an unknown version is answered with the table. No
memory is allocated for a declared length or count before the bytes have arrived.

{table}

The control plane (`LeaderAndIsr`, `UpdateMetadata`, `StopReplica`, `ControlledShutdown`) does not use
Kafka's protocol: its requests are signed msgpack over HTTP on a listener of their own (`minikafka/rpc`).

{families}
"""

CONFORMANCE = """\
# Conformance

{generated}
The requirements on the controller and the replicas, row by row, with the tests that prove each: a test
names its rows with `@pytest.mark.row("D5", …)`. The rows are defined in `tests/conformance/rows.toml`. The
suite fails if a row without a reason for "later" has no passing test (`tests/test_conformance.py`).

{counts}

{groups}
"""


def configuration() -> str:
    """Return the text of configuration.md."""
    return CONFIGURATION.format(
        generated=GENERATED,
        cluster=_key_table(ClusterConfig.keys()),
        broker=_key_table(BrokerConfig.keys(), dynamic=DYNAMIC),
        dynamic_only=_key_table(THROTTLES),
        topic=_key_table(TopicConfig.keys(), with_synonyms=True),
    )


def protocol() -> str:
    """Return the text of protocol.md."""
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
    """Return the text of conformance.md."""
    if TESTS not in sys.path:
        sys.path.insert(0, TESTS)
    rows = importlib.import_module("support.conformance_rows")
    table, claims = rows.catalogue(), rows.claims()
    proved = sum(row in claims for row in table)
    later = sum(row.later is not None and row.id not in claims for row in table.values())
    groups = [
        f"## {title}\n\n"
        + _table(("row", "requirement", "tests", "status"), map(_row_cells, members))
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
    """Return the docstring of an API module, under the module's name."""
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
