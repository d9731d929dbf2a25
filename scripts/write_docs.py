"""Generates the pages of docs/ that are made from the code. `PAGES` lists them.

    .venv/bin/python scripts/write_docs.py

Invariant (checked by tests/test_tidy.py): the committed pages are equal to the generated pages.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import pkgutil
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from runpy import run_path
from typing import Any

from minikafka import broker
from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.config.keys import INT_MAX, LONG_MAX, ConfigType, Key
from minikafka.broker import apis
from minikafka.broker.settings.dynamic_config import DYNAMIC, THROTTLES
from minikafka.kafka.wire.codec import is_flexible
from minikafka.kafka.wire.versions import NAMES, NOT_SERVED, SERVED
from minikafka.tools.cluster.local import BlockingCluster, LocalCluster

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
`control.plane.listener.name`, `log.dir`, `log.dirs` and `zookeeper.connect` itself, so these two kinds of table must
not contain them. In TOML a dotted key needs no quotes: `log.segment.bytes = 1_048_576`.
A key that the file does not set has its default, except `default.replication.factor` and `min.insync.replicas`, which
keep the values of the cluster's first start ([cli.md](cli.md#an-edited-clustertoml)).

{cluster}

### Listeners with TLS and SASL: `[listeners]`

Each row of the table `[listeners]` has the name of a further listener and its port on broker 1; the other brokers use
the ports after it, and 0 stands for any free ports. Names other than `SSL`, `SASL_PLAINTEXT` and `SASL_SSL` need
`listener.security.protocol.map`. **With this table, there is a listener `PLAINTEXT` only if the file sets
`cluster.port`.** This cluster has only an encrypted listener:

```toml
[listeners]
SASL_SSL = 9192

[broker]
security.inter.broker.protocol = "SASL_SSL"
ssl.keystore.location = "/etc/kafka/broker.pem"
ssl.truststore.location = "/etc/kafka/authorities.pem"
sasl.enabled.mechanisms = "PLAIN"
sasl.mechanism.inter.broker.protocol = "PLAIN"
listener.name.sasl_ssl.plain.sasl.jaas.config = '''org.apache.kafka.common.security.plain.PlainLoginModule
  required username="broker" password="…" user_broker="…" user_alice="…";'''
```

- The brokers listen on 127.0.0.1. They check each other's certificates, so the certificate must be for this address,
  unless `ssl.endpoint.identification.algorithm` is empty. If they would refuse it, none is started.
- If the listener between brokers is encrypted, the control listener is encrypted with the same keys.
- `minikafka up` prints the addresses of the first listener, to which commands connect: `PLAINTEXT` if there is one,
  else the first row.
- A listener that is added while brokers run takes effect at their next restart. One that is moved or removed keeps its
  ports until `minikafka down` and `minikafka up`.

## A broker: `minikafka broker --config FILE`

The file has one table, `[broker]`, with these keys. If other machines can reach a listener that has no encryption or no
authentication, the broker logs a warning ([security](security.md)).

Listeners with names of your choice need three keys, for example
`listeners = "IN://127.0.0.1:0,OUT://127.0.0.1:0"` (port 0: a free port),
`listener.security.protocol.map = "IN:PLAINTEXT,OUT:PLAINTEXT"` and `inter.broker.listener.name = "IN"`.
A client gets the addresses of the listener to which it has connected.

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
Kafka's protocol. Its requests are signed msgpack messages, sent over HTTP to a separate listener
(`minikafka/broker/rpc`).

{families}
"""

CONFORMANCE = """\
# Conformance

{generated}
Each row of these tables is one requirement on the cluster. The [tests](#tests) that prove the rows are at the end, one
a line: search for the id of a row. A test names its rows with `@pytest.mark.row("D5", …)`, a transcript with
`# Rows: D5, …`. The rows are defined in `tests/conformance/rows.toml`. Rows A to M are statements of the
descriptions of Kafka's replication that this project is built after: the controller and its state machines, the
reassignment of KAFKA-42, and the leader-coordinated replication that was designed first and not built. Their words are
kept, also where the project does something else. The column *met* says so:

- **as described**: the row is met in the sense of its words
- **partly**: it is met, except for the part that is named, for the reason that is named
- **decided otherwise**: the project does something else, for the reason that is named; the tests show what it does.

The column *mode* has the coordination modes in which the row is claimed and tested: *controller*, *leaders*, or *both*
([architecture](architecture.md#coordination-modes)). In the leaders mode, the nodes of these rows are below `/leaders`.

The status of a row comes from the recorded outcomes of its tests. `pytest --record-rows` writes these outcomes to
`tests/conformance/outcomes.json`, together with the level of each test and the modes of its clusters. The level of a
passed row in a mode is the highest level of its passed tests in this mode. A test without a cluster counts for both
modes, unless its path names one. From low to high, the levels are

- **table**: the test calls parts of a broker directly, such as the controller's state machine
- **memory**: the test runs whole brokers in one event loop; ZooKeeper, disks and network are simulated in memory
- **hosted**: the test runs whole brokers in its own process, with a ZooKeeper process, disks and sockets, and a
  broker that dies there closes its session and files, instead of being killed
- **real**: the test runs broker processes, or whole brokers in its own process of which none dies, with a
  ZooKeeper process, disks and sockets; a process dies by SIGKILL.

A row is *failed* in a mode if one of its tests in this mode failed. Without a passed or failed test it is *open*, or
*later* if it is postponed for the reason that the table shows. A test run fails if all tests of a row ran and none of
them passed, unless the row is *later* in all its modes.

{counts}

{groups}

## Tests

A line is one test: its level, the modes of its clusters if they are not only *controller*, and the rows that it proves.

{tests}
"""

CHECKS = """\
# Rules of the repository

{generated}
These tests check rules that no linter has. The text of each is its reason ([contributing](contributing.md)).

{tables}
"""
RULE_FILES = ("tidy", "imports", "docs", "docstrings", "glossary")
"""The files `tests/test_….py` in which each test is a rule."""
OTHER_RULES = {
    "conformance": (
        "test_every_conformance_row_in_scope_is_named_by_the_mark_of_a_test",
        "test_every_row_mark_of_a_test_names_a_row_of_the_conformance_table",
        "test_every_conformance_row_has_a_recorded_pass_in_each_of_its_modes",
    ),
    "unit/scripts/planted": (
        "test_planted_bug_fits_the_code_and_has_existing_tests",
        "test_every_rule_and_every_safety_row_has_a_planted_bug",
    ),
    "unit/scripts/run_tests": ("test_every_row_of_the_folders_has_tests_and_every_test_has_a_row",),
}
"""The rules in other files, by file."""

CLIENTS = run_path(str(ROOT / "scripts/clients_page.py"))["CLIENTS"]


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
    rows = importlib.import_module("support.rows.conformance_rows")
    results = importlib.import_module("support.rows.row_results")
    return conformance_page(rows.catalogue().values(), rows.claims(), results.FILE)


def conformance_page(
    rows: Iterable[Any], claims: Mapping[str, Iterable[str]], outcomes: Path
) -> str:
    """Return the text of conformance.md: each row (requirement) with the results of its tests.

    `claims`: the tests of each row, by row id. `outcomes`: the file with the recorded results.
    """
    recorded = importlib.import_module("support.rows.row_results").read(outcomes)
    statuses = [
        (row, _Status(row, {test: recorded.get(test) for test in claims.get(row.id, ())}))
        for row in rows
    ]
    groups = [
        f"## {title}\n\n"
        + _table(
            ("row", "requirement", "met", "mode", "status"),
            (
                [row.id, row.what, status.met(), status.modes(), str(status)]
                for row, status in members
            ),
        )
        for title, members in itertools.groupby(statuses, lambda pair: pair[0].group)
    ]
    return CONFORMANCE.format(
        generated=GENERATED,
        counts=_counts(*zip(*statuses, strict=True)),
        groups="\n\n".join(groups),
        tests=_tests(claims, recorded),
    )


def _tests(claims: Mapping[str, Iterable[str]], recorded: Mapping[str, Any]) -> str:
    """Return a list of the tests below the paths of their files, with the rows that each proves.

    The tests of a file are in the order of their names, so that a test may move within its file.
    """
    rows: dict[tuple[str, str], list[str]] = {}
    for row, tests in claims.items():
        for test in tests:
            file, mark, name = test.partition("::")
            if not mark:  # a transcript
                file, _, name = test.rpartition("/")
            rows.setdefault((file, name), []).append(row)
    lines = []
    for file, members in itertools.groupby(sorted(rows), lambda pair: pair[0]):
        lines.append(f"\n`{file}`\n")
        for _, name in members:
            result = recorded.get(f"{file}/{name}" if name.endswith(".txt") else f"{file}::{name}")
            said = str(result).removeprefix("passed ") if result else "not run"
            lines.append(f"- `{name}` ({said}): {', '.join(sorted(rows[file, name], key=_order))}")
    return "\n".join(lines).strip()


def _order(row: str) -> tuple[str, int]:
    return row[0], int(row[1:])


class _Status:
    """The status of a conformance row. `results`: the recorded result of each test; None if not recorded."""

    def __init__(self, row: Any, results: Mapping[str, Any]) -> None:
        self._row = row
        self._results = results
        outcomes = Counter(result.outcome if result else "not run" for result in results.values())
        self.bad = {what: outcomes[what] for what in sorted(outcomes) if what != "passed"}
        """How many tests failed, were skipped or did not run."""
        self.by_mode = {mode: self._word(mode) for mode in row.modes}
        """Mode -> the level of the strongest passed test: table, memory or real; else failed, open or later."""

    def _word(self, mode: str) -> str:
        shown = [r for test, r in self._results.items() if r is not None and r.shows(test, mode)]
        if any(result.outcome == "failed" for result in shown):
            return "failed"
        if passed := [result.level for result in shown if result.outcome == "passed"]:
            return str(max(passed).label)
        return "later" if mode in self._row.later else "open"

    def met(self) -> str:
        """Return whether the requirement is met as described, with the reason if it is not."""
        if self._row.otherwise:
            return f"*decided otherwise*: {self._row.otherwise}"
        return f"*partly*: {self._row.partly}" if self._row.partly else "as described"

    def modes(self) -> str:
        """Return the coordination modes in which the row holds."""
        return "both" if len(self.by_mode) > 1 else next(iter(self.by_mode))

    def __str__(self) -> str:
        words = []
        for mode, word in self.by_mode.items():
            text = f"*later*: {self._row.later[mode]}" if word == "later" else f"**{word}**"
            words.append(f"{mode} {text}" if len(self.by_mode) > 1 else text)
        numbers = ", ".join(f"{number} {what}" for what, number in self.bad.items())
        return "; ".join(filter(None, (", ".join(dict.fromkeys(words)), numbers)))


def _counts(rows: Sequence[Any], statuses: Sequence[_Status]) -> str:
    lines = []
    for mode in dict.fromkeys(mode for row in rows for mode in row.modes):
        words = Counter(status.by_mode[mode] for status in statuses if mode in status.by_mode)
        levels = {level: words[level] for level in ("real", "hosted", "memory", "table")}
        by_level = ", ".join(f"{number} {level}" for level, number in levels.items())
        lines.append(
            f"- {mode} mode, {words.total()} rows: {sum(levels.values())} passed ({by_level}), "
            f"{words['failed']} failed, {words['open']} open, {words['later']} later."
        )
    otherwise = sum(1 for row in rows if row.otherwise)
    partly = sum(1 for row in rows if row.partly)
    lines.append(
        f"- {len(rows)} rows in all: {len(rows) - partly - otherwise} as described, {partly} partly, "
        f"{otherwise} decided otherwise."
    )
    return "\n".join(lines)


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
    if key.kind in (ConfigType.INT, ConfigType.LONG) and key.default in (INT_MAX, LONG_MAX):
        default = "no limit"
    doc = key.meaning + " *No effect yet.*" * bool(key.waits_for)
    return [key.kind.name.lower(), default, key.bounds(), doc]


def spark_options() -> str:
    """Return the text of spark-options.md, the page about the options of the Spark data source."""
    _import_tests()
    page = run_path(str(ROOT / "scripts" / "spark_options_page.py"))["page"]
    text: str = page(GENERATED, _table)
    return text


def _import_tests() -> None:
    """Make the modules of the tests importable."""
    if TESTS not in sys.path:
        sys.path.insert(0, TESTS)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = list(head)
    lines = [cells, ["---"] * len(cells), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def clients() -> str:
    """Return the text of clients.md, the page about client libraries."""
    _import_tests()
    from support.clients import client_outcomes
    from support.clients.client_drivers import CLIENTS as LIBRARIES

    outcomes = client_outcomes.read()
    reasons = sorted(
        {o for found in outcomes.values() for o in found.values()} - {"passed", "failed"}
    )
    notes = {reason: f"{number}" for number, reason in enumerate(reasons, 1)}
    shown = {reason: f"skipped ({number})" for reason, number in notes.items()}
    rows = [
        [
            test.removeprefix("test_").replace("_", " "),
            *(
                shown.get(found.get(one.name, ""), found.get(one.name, "not run"))
                for one in LIBRARIES
            ),
        ]
        for test, found in outcomes.items()
    ]
    return CLIENTS.format(
        generated=GENERATED,
        table=_table(["", *(f"{library.name} {library.version}" for library in LIBRARIES)], rows),
        skipped="\n".join(f"{number}. Skipped: {reason}." for reason, number in notes.items()),
    )


def checks() -> str:
    """Return the text of checks.md, the page about the tests that check rules of the repository."""
    tables = [_rules(name, None) for name in RULE_FILES]
    tables += [_rules(name, tests) for name, tests in OTHER_RULES.items()]
    return CHECKS.format(generated=GENERATED, tables="\n\n".join(tables))


def _rules(name: str, tests: Container[str] | None) -> str:
    """Return the table of the tests in a file, or of these tests, each with the first paragraph of its docstring."""
    folder, _, stem = name.rpartition("/")
    path = Path("tests", folder, f"test_{stem}.py")
    rows = [
        (f"`{node.name}`", " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split()))
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and (tests is None or node.name in tests)
    ]
    return _table((f"`{path}`", "why"), rows)


def testing() -> str:
    """Return the text of testing.md, in which the table of the methods of `LocalCluster` is generated."""
    page = (DOCS / "testing.md").read_text()
    head, _, rest = page.partition("<!-- methods -->\n")
    names = [name for name in vars(BlockingCluster) if not name.startswith("_")]
    rows = [
        (f"`{_call(name)}`", _first_paragraph(getattr(LocalCluster, name)))
        for name in names
        if name not in ("open", "close", "record", "directory")
    ]
    table = _table(("method", "effect"), rows)
    return f"{head}<!-- methods -->\n{table}\n{rest[rest.index('<!-- end -->') :]}"


def _call(name: str) -> str:
    """Return a method of `LocalCluster` with the names of its arguments, or the name of a property."""
    method = getattr(LocalCluster, name)
    if isinstance(method, property):
        return name
    arguments = [
        each for each in inspect.signature(method).parameters if each not in ("self", "timeout_ms")
    ]
    return f"{name}({', '.join(arguments)})"


def _first_paragraph(documented: Any) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


PAGES = {
    "checks.md": checks,
    "clients.md": clients,
    "configuration.md": configuration,
    "metrics.md": lambda: run_path(str(ROOT / "scripts/metrics_page.py"))["metrics_page"](
        GENERATED
    ),
    "protocol.md": protocol,
    "conformance.md": conformance,
    "spark-options.md": spark_options,
    "testing.md": testing,
}


def main() -> None:
    """Write all generated pages to docs/."""
    for name, text in PAGES.items():
        (DOCS / name).write_text(text())


if __name__ == "__main__":
    main()
