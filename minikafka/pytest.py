"""The pytest plugin: a Kafka for tests, and a report of it when a test fails.

Fixtures: `minikafka_cluster` (one cluster per session and worker), `minikafka` (what one test needs of it) and
`minikafka_private` (clusters for tests that destroy). pytest finds the plugin by its entry point. It imports only the
standard library and pytest until a test uses a fixture or a LocalCluster.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from minikafka.testing.blocking import Minikafka
    from minikafka.testing.report import Before

CONTROLLER: Final = "controller"
LEADERS: Final = "leaders"
_KEPT: Final = "minikafka_logs"
"""The attribute of a report that names the directories of the kept logs. pytest-xdist transfers such attributes."""
_KEPT_DATA: Final = "minikafka_data"
"""The key under which a worker of pytest-xdist reports the data directory that it has kept."""
_session: Final[pytest.StashKey[Minikafka]] = pytest.StashKey()
_kits: Final[pytest.StashKey[list[Minikafka]]] = pytest.StashKey()
_kept: Final = pytest.StashKey[list[str]]()
_before: Final[pytest.StashKey[Before]] = pytest.StashKey()


class _AsWritten:
    """A finder that imports minikafka's other modules without pytest's rewriting of assertions.

    pytest rewrites all modules of a package with a plugin. Without this finder, that would take longer than the start
    of a broker in each run that writes no .pyc files.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        return PathFinder.find_spec(name, path, target) if name.startswith("minikafka.") else None


sys.meta_path.insert(0, _AsWritten)

# Options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and an ini key for each."""
    group = parser.getgroup("minikafka", "minikafka: a Kafka for tests")
    group.addoption(
        "--minikafka-brokers",
        metavar="N",
        help="brokers of the cluster that tests share (default: 3)",
    )
    group.addoption(
        "--minikafka-coordination",
        metavar="MODE",
        help=f"its coordination mode, {CONTROLLER} (default) or {LEADERS}",
    )
    group.addoption(
        "--minikafka-setting",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of its brokers, by Kafka's name; may be repeated",
    )
    group.addoption(
        "--minikafka-faults",
        action="store_true",
        default=None,
        help="let faults of its disks and connections be possible, which makes it a little slower",
    )
    group.addoption(
        "--minikafka-keep",
        action="store_true",
        default=None,
        help="keep its data after the tests, and print the command that starts it again",
    )
    group.addoption(
        "--minikafka-external",
        metavar="HOST:PORT",
        help="run the tests against another Kafka; fault verbs skip the test",
    )
    number: Any = "int" if pytest.version_tuple >= (8, 4) else "string"
    parser.addini("minikafka_brokers", "as --minikafka-brokers", number, default=3)
    parser.addini("minikafka_coordination", "as --minikafka-coordination", default=CONTROLLER)
    parser.addini("minikafka_settings", "as --minikafka-setting, one per line", "linelist")
    parser.addini("minikafka_faults", "as --minikafka-faults", "bool", default=False)
    parser.addini("minikafka_keep", "as --minikafka-keep", "bool", default=False)
    parser.addini("minikafka_external", "as --minikafka-external", default="")


def _option(config: pytest.Config, name: str) -> Any:
    """Return the value of an option, or else of its ini key."""
    given = config.getoption(f"minikafka_{name}")
    return _ini(config, f"minikafka_{name}") if given is None else given


def _ini(config: pytest.Config, name: str) -> Any:
    try:
        return config.getini(name)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(str(error)) from None


def _settings(config: pytest.Config) -> dict[str, str]:
    lines = [*_ini(config, "minikafka_settings"), *config.getoption("minikafka_setting")]
    pairs = [line.partition("=") for line in lines]
    for (key, equals, _), line in zip(pairs, lines, strict=True):
        if not (key.strip() and equals):
            raise pytest.UsageError(f"--minikafka-setting must be KEY=VALUE, not {line!r}")
    return {key.strip(): value.strip() for key, _, value in pairs}


def pytest_configure(config: pytest.Config) -> None:
    """Refuse invalid options before any test runs."""
    config.stash[_kept] = []
    brokers, mode = str(_option(config, "brokers")), _option(config, "coordination")
    if not (brokers.isdecimal() and int(brokers) > 0):
        raise pytest.UsageError(f"--minikafka-brokers must be a number from 1, not {brokers!r}")
    if mode not in (CONTROLLER, LEADERS):
        words = f"--minikafka-coordination must be {CONTROLLER} or {LEADERS}"
        raise pytest.UsageError(f"{words}, not {mode!r}")
    for address in filter(None, _option(config, "external").split(",")):
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()):
            raise pytest.UsageError(f"--minikafka-external must be HOST:PORT, not {address!r}")
    _settings(config)


# Fixtures


@contextmanager
def _no_collections() -> Iterator[None]:
    """Collect no garbage during imports: that would take a seventh of their time, and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _kit() -> type[Minikafka]:
    with _no_collections():
        from minikafka.testing.blocking import Minikafka

        return Minikafka


@pytest.fixture(scope="session")
def minikafka_cluster(request: pytest.FixtureRequest) -> Iterator[Minikafka]:
    """The Kafka that all tests of this process share. Its topics live until the end of the run."""
    config = request.config
    external = _option(config, "external")
    with ExitStack() as stack:
        kafka = _kit()(
            int(_option(config, "brokers")),
            external=external,
            label="session",
            refuse=_skip,
            config=_settings(config),
            coordination=_option(config, "coordination"),
            faults=_option(config, "faults"),
            data=None if external or not _option(config, "keep") else _kept_directory(config),
        )
        stack.enter_context(_sentences())
        with _no_collections():  # the start imports more
            stack.enter_context(kafka)
        config.stash[_session] = kafka
        yield kafka
        del config.stash[_session]


@pytest.fixture
def minikafka(minikafka_cluster: Minikafka, request: pytest.FixtureRequest) -> Iterator[Minikafka]:
    """The shared Kafka for one test: names of its own, and topics that are deleted after the test."""
    with _sentences():
        minikafka_cluster.repair()  # a test may have harmed it without this fixture
    mine = minikafka_cluster.for_test(request.node.name)
    request.node.stash.setdefault(_kits, []).append(mine)
    yield mine
    if not _option(request.config, "keep"):
        mine.end_test()


@pytest.fixture
def minikafka_private(request: pytest.FixtureRequest) -> Iterator[Callable[..., Minikafka]]:
    """A function that starts a cluster of its own for a test that destroys it. Its arguments are LocalCluster's."""
    external = _option(request.config, "external")
    if external:
        _skip(f"minikafka_private starts a cluster of minikafka; the tests run against {external}")
    with ExitStack() as stack:

        def start(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not args:
                kwargs.setdefault("brokers", int(_option(request.config, "brokers")))
            kwargs.setdefault("coordination", _option(request.config, "coordination"))
            kwargs.setdefault("faults", _option(request.config, "faults"))
            kafka = _kit()(*args, label=request.node.name, **kwargs)
            return kafka.opened(stack, request.node.stash.setdefault(_kits, []))

        yield start


def _kept_directory(config: pytest.Config) -> str:
    config.stash[_kept].append(tempfile.mkdtemp(prefix="minikafka-kept-"))
    return config.stash[_kept][0]


@contextmanager
def _sentences() -> Iterator[None]:
    """Fail with the text of an expected error, without a traceback through the plugin."""
    from minikafka.base.errors import MinikafkaError

    try:
        yield
    except MinikafkaError as error:
        hint = f" ({error.hint})" if error.hint else ""
        text = "\n".join([f"{error}{hint}", *getattr(error, "__notes__", ())])
        raise pytest.fail.Exception(text, pytrace=False) from None


def _skip(reason: str) -> NoReturn:
    pytest.skip(reason)


# After a test


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Repair the shared cluster if the test has harmed it."""
    yield
    kafka = item.config.stash.get(_session, None)
    if kafka is not None:
        with _sentences():
            kafka.repair()


# Reports


def _uses_clusters() -> bool:
    """True if something in this process has imported LocalCluster."""
    return "minikafka.tools.cluster.lifecycle" in sys.modules


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note where the logs end before a test and the setup of its fixtures."""
    if _uses_clusters():
        from minikafka.testing.report import Before

        item.stash[_before] = Before.now()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the clusters did to the report of a failed test, and keep their logs."""
    report = yield
    if report.failed and _uses_clusters():
        from minikafka.testing.report import Before, sections_of

        before = item.stash.setdefault(_before, Before(int(call.start * 1000)))
        kits = item.stash.setdefault(_kits, [])
        sections, logs = sections_of(before, kits)
        report.sections.extend(sections)
        setattr(report, _KEPT, logs)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the directories of the kept logs and data."""
    reports = [r for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, ())]
    for path in dict.fromkeys(path for report in reports for path in getattr(report, _KEPT, ())):
        terminalreporter.write_line(
            f"minikafka: the logs of the failed tests' cluster are in {path}"
        )
    for path in config.stash[_kept]:
        terminalreporter.write_line(
            f"minikafka: the cluster's data is kept; minikafka up --data {path} starts it again"
        )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the kept directories from a worker of pytest-xdist to the process that prints them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_KEPT_DATA] = session.config.stash[_kept]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive what a worker of pytest-xdist has kept."""
    node.config.stash[_kept].extend(getattr(node, "workeroutput", {}).get(_KEPT_DATA, ()))
