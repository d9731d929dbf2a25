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

from minikafka import broker
from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.config.keys import INT_MAX, LONG_MAX, Key, Kind
from minikafka.broker import apis
from minikafka.broker.settings.dynamic_config import DYNAMIC, THROTTLES
from minikafka.wire.versions import NAMES, NOT_SERVED, SERVED, is_flexible

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TESTS = str(ROOT / "tests")
GENERATED = "<!-- Written by scripts/write_docs.py from the code; edit the code. -->\n"

CONFIGURATION = """\
# Configuration

{generated}
Every key except `minikafka.…` is Kafka's, with the type, default and range of Kafka 3.9. An unknown key, or a
value out of range, is refused; the error names the most similar key, or the range. Broker keys of Kafka features that
minikafka does not have are unknown keys. Every key has an effect, except the keys
[at the end](#accepted-stored-no-effect-yet).

## A cluster: `cluster.toml`

`minikafka up --config cluster.toml` starts brokers 1 … N with the keys of this file. The table `[broker]` contains keys
for all brokers, a table `[broker.N]` keys for broker N. The cluster sets `broker.id`, `listeners`,
`inter.broker.listener.name`, `control.plane.listener.name`, `log.dir`, `log.dirs` and `zookeeper.connect` itself, so
these two kinds of table must not contain them. In TOML a dotted key needs no quotes: `log.segment.bytes = 1_048_576`.

{cluster}

## A broker: `minikafka broker --config FILE`

The file has one table, `[broker]`, with these keys. Other machines may be able to reach the listeners; the broker then
logs a warning, because there is no encryption and no authentication.

A *dynamic* key can also be changed while brokers run: for one broker with
`minikafka configs set KEY=VALUE --broker ID`, for all brokers with `--brokers-default`, or with a client's
AlterConfigs. Other keys can be changed only in the file, and take effect after a restart.

{broker}

These keys can only be changed while brokers run; the file must not contain them:

{dynamic_only}

## A topic

These keys can be set when a topic is created (`minikafka topics create … --config KEY=VALUE`). A key that is not set
has the value of the broker key in the last column. Each key can be changed while the topic is in use, with
`minikafka configs set KEY=VALUE --topic NAME` or a client's AlterConfigs.

{topic}

## Accepted, stored, no effect yet

These keys are checked, stored and shown like all other keys. They have no effect until the feature that they need is
implemented.

{waiting}
"""

PROTOCOL = """\
# Protocol

{generated}
Each broker has one or more listeners for Kafka's protocol. They serve clients and the followers on other brokers. The
table lists the versions that ApiVersions returns. The sections after the table describe each family of APIs, and the
request fields that it deliberately ignores.

The broker closes the connection after a request that

- is longer than `socket.request.max.bytes`, or longer than 8 MiB if it is neither Produce nor Fetch
- cannot be decoded, for example because it is truncated
- names an unsupported API or version. Only an ApiVersions request of an unknown version is answered, with the table.

Bytes of a string that are not UTF-8 are read as U+FFFD, as in Kafka, so such a request is answered. A time may be any
number that its field can hold.

A declared length alone allocates at most 256 KiB: more memory is allocated only as the bytes arrive. A declared count
allocates no memory before the bytes of its elements have arrived.

{table}

For each of these APIs, brokers serve every version that Apache Kafka 3.9 serves, except:

{not_served}

The control plane (`LeaderAndIsr`, `UpdateMetadata`, `StopReplica`, `ControlledShutdown`) does not use
Kafka's protocol. Its requests are signed msgpack messages, sent over HTTP to a separate listener (`minikafka/rpc`).

{families}
"""

CONFORMANCE = """\
# Conformance

{generated}
Each row of these tables is one requirement on the cluster, with the tests that prove it. A test names its rows with
`@pytest.mark.row("D5", …)`. The rows are defined in `tests/conformance/rows.toml`. The *leader-coordinated variant* is
an early design of Kafka's replication, in which a partition's leader sends the requests that the controller sends here.

The status of a row comes from the outcomes of its tests in the last recorded run. `pytest --record-rows` writes these
outcomes to `tests/conformance/outcomes.json`, together with the level of each test. The level of a passed row is the
highest level of its passed tests. From low to high, the levels are

- **table**: the test calls parts of a broker directly, such as the controller's state machine
- **memory**: the test runs whole brokers in one event loop; ZooKeeper, disks and network are simulated in memory
- **real**: the test runs broker processes, or whole brokers in its own process, with Apache ZooKeeper, disks and
  sockets.

A row is *failed* if one of its tests failed. A row without a passed or failed test is *open*, or *later* if it is
postponed for the reason that the table shows. A test run fails if all tests of a row ran and none of them passed,
unless the row is *later*.

{counts}

{groups}
"""

CLIENTS = """\
# Clients

{generated}
The same scenarios run with every client library, unmodified, against a cluster of three brokers
(`tests/clients/test_matrix.py`). The table shows the outcomes of the last recorded run (`pytest --record-rows`). The
tests of a client are skipped if its build tools are missing: kafkajs needs `npm`, franz-go needs `go`, and the Java
client needs `javac` and the environment variable `MINIKAFKA_KAFKA_JARS`, which names a folder with Apache Kafka's jars.
`minikafka consume --group` and the consumer of `minikafka.client` have their own tests.

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
    names = [f"apis.{name}" for _, name, _ in pkgutil.iter_modules(apis.__path__)]
    families = [_family(name) for name in ("produce.handler", "fetch.handler", *names)]
    return PROTOCOL.format(
        generated=GENERATED,
        table=_table(("API", "key", "versions", "flexible from"), rows),
        not_served="\n".join(
            f"- {NAMES[api]} {low} to {high}, because {reason}"
            for (api, low, high), reason in NOT_SERVED.items()
        ),
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
    """Return the text of conformance.md: each row (requirement) with the results of its tests.

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
        """The status as one word: passed, failed, open, or later (if there is a reason to postpone the row)."""
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
        """Return the name of each test with its level (table, memory or real), and its outcome if it did not pass."""
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
    """Return a section with the name of a broker's module as the title and the docstring as the text."""
    module = importlib.import_module(f"{broker.__name__}.{name}")
    return f"## `{name.replace('.', '/')}.py`\n\n{(module.__doc__ or '').strip()}"


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
    doc = key.meaning + " *No effect yet.*" * bool(key.waits_for)
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
