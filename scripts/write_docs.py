"""Generates pages of docs/ from the code: configuration.md, protocol.md, conformance.md and clients.md.

    .venv/bin/python scripts/write_docs.py

Invariant (checked by tests/test_tidy.py): the committed pages are equal to the generated pages.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minikafka.base.cluster_config import ClusterConfig
from minikafka.base.config import BrokerConfig, TopicConfig
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
do not exist here are unknown. Every key has an effect, except those [at the end](#accepted-stored-no-effect-yet).

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

## Accepted, stored, no effect yet

These keys are checked, stored and shown like all others, and change nothing until the part they need exists.

{waiting}
"""

PROTOCOL = """\
# Protocol

{generated}
One listener per broker serves Kafka's protocol to clients and to the followers on other brokers. The table
lists the versions that ApiVersions returns; below it, each family of APIs is described with the fields that
it deliberately ignores.

A request that is longer than `socket.request.max.bytes`, or than 8 MiB unless it is Produce or Fetch, is
truncated, or names an unsupported API or version ends the connection; an ApiVersions request of an unknown
version is answered with the table. No memory is allocated for a declared length or count before the bytes
have arrived.

{table}

The control plane (`LeaderAndIsr`, `UpdateMetadata`, `StopReplica`, `ControlledShutdown`) does not use
Kafka's protocol: its requests are signed msgpack over HTTP on a listener of their own (`minikafka/rpc`).

{families}
"""

CONFORMANCE = """\
# Conformance

{generated}
The requirements on the cluster, row by row, with the tests that prove each: a test names its rows with
`@pytest.mark.row("D5", …)`. The rows are defined in `tests/conformance/rows.toml`.

The status of a row is that of its tests in the last recorded run, which `pytest --record-rows` keeps in
`tests/conformance/outcomes.json`, together with what each test ran on. The strongest proof of a row is

- **table**: parts of a broker called directly, such as the pure core of the controller,
- **memory**: whole brokers in one event loop, with memory for ZooKeeper, disks and network, or
- **real**: broker processes, or whole brokers in the process of the test, on Apache ZooKeeper, disks and sockets.

Every run of the suite fails if all tests of a row ran and none of them passed, unless the row has a reason to
be *later*.

{counts}

{groups}
"""

CLIENTS = """\
# Clients

{generated}
One scenario runs with every client library, unmodified, against a cluster of three brokers
(`tests/clients/test_matrix.py`). The table has the outcomes of the last recorded run (`pytest --record-rows`). In a
run without a client's toolchain its tests are skipped: kafkajs needs `npm`, franz-go needs `go`, and Java's client
needs `javac` and the environment variable `MINIKAFKA_KAFKA_JARS`, which names a folder with Apache Kafka's jars.
`minikafka consume --group` and the consumer of `minikafka.client` have tests of their own.

{table}

{skipped}
"""


def configuration() -> str:
    """Return the text of configuration.md."""
    return CONFIGURATION.format(
        generated=GENERATED,
        cluster=_key_table(ClusterConfig.keys()),
        broker=_key_table(BrokerConfig.keys(), dynamic=DYNAMIC),
        dynamic_only=_key_table(THROTTLES),
        topic=_key_table(TopicConfig.keys(), with_synonyms=True),
        waiting=_waiting_table(),
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
    results = importlib.import_module("support.row_results")
    return conformance_page(rows.catalogue().values(), rows.claims(), results.FILE)


def conformance_page(
    rows: Iterable[Any], claims: Mapping[str, Iterable[str]], outcomes: Path
) -> str:
    """Return the text of conformance.md for these rows, with the results of each row's tests.

    `claims`: the tests of each row, by row id. `outcomes`: the file with the recorded results.
    """
    results = importlib.import_module("support.row_results")
    recorded = results.read(outcomes)
    statuses = [
        (row, _Status(row, {test: recorded.get(test) for test in claims.get(row.id, ())}))
        for row in rows
    ]
    groups = [
        f"## {title}\n\n"
        + _table(
            ("row", "requirement", "status", "tests"),
            ([row.id, row.what, str(status), status.tests()] for row, status in members),
        )
        for title, members in itertools.groupby(statuses, lambda pair: pair[0].group)
    ]
    return CONFORMANCE.format(
        generated=GENERATED,
        counts=_counts([status for _, status in statuses], results.recorded_on(outcomes)),
        groups="\n\n".join(groups),
    )


class _Status:
    """The status of a conformance row. `results`: the recorded result of each test; None if not recorded."""

    def __init__(self, row: Any, results: Mapping[str, Any]) -> None:
        self._row = row
        self._results = results
        outcomes = Counter(result.outcome if result else "not run" for result in results.values())
        self.outcomes = {outcome: outcomes[outcome] for outcome in sorted(outcomes, reverse=True)}
        passed = [r.level for r in results.values() if r and r.outcome == "passed"]
        self.level = max(passed).label if passed else ""

    @property
    def word(self) -> str:
        """The status as one word: passed, failed, later or open."""
        if "failed" in self.outcomes:
            return "failed"
        if self.level:
            return "passed"
        return "open" if self._row.later is None else "later"

    def __str__(self) -> str:
        if self.word == "later":
            return f"*later*: {self._row.later}"
        numbers = ", ".join(f"{number} {what}" for what, number in self.outcomes.items())
        words = [f"**{self.level if self.word == 'passed' else self.word}**", numbers]
        if self._row.rest:
            words.append(f"*later*: {self._row.rest}")
        return "; ".join(filter(None, words))

    def tests(self) -> str:
        """Return the names of the tests with their levels, and with the outcomes of tests that did not pass."""
        shown = []
        for test, result in self._results.items():
            said = "not run" if result is None else result.level.label
            if result is not None and result.outcome != "passed":
                said = f"{said}, {result.outcome}"
            shown.append(f"`{test}` ({said})")
        return "<br>".join(shown)


def _counts(statuses: Sequence[_Status], recorded_on: str) -> str:
    words = Counter(status.word for status in statuses)
    levels = Counter(status.level for status in statuses if status.word == "passed")
    by_level = ", ".join(f"{levels[level]} {level}" for level in ("real", "memory", "table"))
    return (
        f"{len(statuses)} rows: {words['passed']} passed ({by_level}), {words['failed']} failed, "
        f"{words['open']} open, {words['later']} later. Last recorded run: {recorded_on or 'none'}."
    )


def _family(name: str) -> str:
    """Return a section with the name of an API module as the title and the docstring as the text."""
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


def _waiting_table() -> str:
    rows: dict[str, list[str]] = {}
    for keys in (TopicConfig.keys(), BrokerConfig.keys(), THROTTLES):
        for name, key in keys.items():
            if key.waits_for and f"`{name}`" not in rows.setdefault(key.waits_for, []):
                rows[key.waits_for].append(f"`{name}`")
    return _table(
        ("waits for", "keys"), [(part, ", ".join(names)) for part, names in rows.items() if names]
    )


def _key_cells(key: Key) -> list[str]:
    default = "(none)" if key.default in (None, "", ()) else f"`{key.text(key.default)}`"
    if key.kind in (Kind.INT, Kind.LONG) and key.default in (INT_MAX, LONG_MAX):
        default = "no limit"
    doc = key.doc + " *No effect yet.*" * bool(key.waits_for)
    return [key.kind.name.lower(), default, key.bounds(), doc]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def clients() -> str:
    """Return the text of clients.md, the page about client libraries."""
    if TESTS not in sys.path:
        sys.path.insert(0, TESTS)
    from support import client_outcomes
    from support.client_drivers import CLIENTS as LIBRARIES

    outcomes = client_outcomes.read()
    reasons = sorted(
        {o for found in outcomes.values() for o in found.values()} - {"passed", "failed"}
    )
    notes = {reason: f"{number}" for number, reason in enumerate(reasons, 1)}
    rows = [
        [
            test.removeprefix("test_").replace("_", " "),
            *(_outcome(found.get(library.name, ""), notes) for library in LIBRARIES),
        ]
        for test, found in outcomes.items()
    ]
    return CLIENTS.format(
        generated=GENERATED,
        table=_table(["", *(f"{library.name} {library.version}" for library in LIBRARIES)], rows),
        skipped="\n".join(f"{number}. Skipped: {reason}." for reason, number in notes.items()),
    )


def _outcome(outcome: str, notes: Mapping[str, str]) -> str:
    return f"skipped ({notes[outcome]})" if outcome in notes else outcome or "not run"


PAGES = {
    "clients.md": clients,
    "configuration.md": configuration,
    "protocol.md": protocol,
    "conformance.md": conformance,
}


def main() -> None:
    """Write all generated pages to docs/."""
    for name, text in PAGES.items():
        (DOCS / name).write_text(text())


if __name__ == "__main__":
    main()
