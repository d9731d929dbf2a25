"""Settings of the whole suite: marks by folder, a shared cluster, a check for lost tasks.

pytest does not notice a background task that fails, or a task that still runs after the test. The fixture
`watched_loop` turns both into test failures. The tiers (conformance, cluster, clients, spark) are marked by path.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from support import orphans
from support.clients.client_outcomes import MatrixOutcomes
from support.rows import proof
from support.rows.conformance_rows import RowOutcomes
from support.source_files import forget_trees
from support.zookeeper.cache import ZooKeeperCache
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from minikafka.base.zookeeper import EMBEDDED, OWN

TESTS = Path(__file__).parent
FIRST_WORKER = "gw0"
LOW_PRIORITY = 5
"""The niceness of the first worker, so that servers and clients of other workers need not wait for its tests."""
YOUNG_OBJECTS = 20_000
"""Number of new objects after which Python collects garbage while tests run."""
TIERS = ("conformance", "cluster", "clients", "spark")
ON_SHARED_CLUSTER = ("cluster", "clients", "spark")
SHARED_CLUSTER = "support.clusters.running_cluster"
"""The plugin with the fixtures `cluster` and `shared_cluster`."""
FORKED_BROKERS = "support.clusters.forked_brokers"
"""The plugin that lets brokers start faster."""
PIPELINES = "tests/spark/pipeline/"
LONG_PIPELINE = "tests/spark/pipeline/test_check.py"
"""The pipeline whose tests take a third of the time of all pipelines."""
OWN_SPARK = (
    "tests/spark/test_connect.py",
    "tests/spark/test_deaths.py",
    "tests/spark/test_standalone.py",
)
"""Files whose tests start their own Java processes instead of the shared session; any worker may run them."""

RULES = tuple(
    f"tests/test_{name}.py"
    for name in ("conformance", "docs", "docstrings", "glossary", "imports", "support", "tidy")
)
"""Files with rules about the sources (`support.source_files`)."""

# On a busy machine one example may take longer than Hypothesis's default of 200 ms.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-rows",
        action="store_true",
        help="record the outcomes of tests that claim rows, for docs/conformance.md",
    )
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the answers of the state machines into the transcripts, for review as a diff",
    )
    parser.addoption(
        "--coordination",
        choices=proof.MODES,
        default=proof.CONTROLLER,
        help="coordination mode of the cluster that tests share",
    )
    parser.addoption(
        "--zookeeper",
        choices=OWN,
        default=EMBEDDED,
        help="ZooKeeper of the cluster that tests share: this project's server, or Apache ZooKeeper",
    )


def pytest_configure(config: pytest.Config) -> None:
    orphans.watch()
    accept_interrupts()
    keep_compiled_modules()
    start_java_fast()
    if os.environ.get("PYTEST_XDIST_WORKER") == FIRST_WORKER:
        os.nice(LOW_PRIORITY)
    config.pluginmanager.register(RowOutcomes(), RowOutcomes.NAME)
    config.pluginmanager.register(MatrixOutcomes())
    if "PYTEST_XDIST_WORKER" not in os.environ and config.getoption("numprocesses", None):
        config.pluginmanager.register(ZooKeeperCache())


def accept_interrupts() -> None:
    """Handle SIGINT even if the suite runs as a background command of a script, which starts with SIGINT ignored.

    Without this, the processes that tests start and interrupt would also ignore SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def keep_compiled_modules() -> None:
    """Write .pyc files in the workers and in every process of a test, even if PYTHONDONTWRITEBYTECODE is set.

    Without .pyc files, each broker and command compiles modules for 0.5 s, and each worker compiles tests for 5 s.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def start_java_fast() -> None:
    """Set Java options for Spark's processes, which are too short-lived for optimizing compilation.

    Spark's classes are not verified when they are loaded, which would take an eighth of the start.
    """
    quick = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", quick)
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", f"{quick} -XX:+UseSerialGC")


class SchedulingByFile(LoadFileScheduling):
    """Schedule whole files, as `--dist loadfile` does. Files of one worker are those that share a Spark session, and
    those with rules about the sources, which read and parse each source once. Two workers have a Spark session: with
    one, its tests took longer than all others.

    The first worker begins with the last files, which test in memory. So tests that compute run while others wait for
    servers, at a lower priority.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id == FIRST_WORKER:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        if shares_spark(nodeid):
            is_second = nodeid.startswith(PIPELINES) and not nodeid.startswith(LONG_PIPELINE)
            return PIPELINES if is_second else "tests/spark"
        return "tests" if reads_sources(nodeid) else super()._split_scope(nodeid)


def reads_sources(nodeid: str) -> bool:
    return nodeid.startswith(RULES)


def shares_spark(nodeid: str) -> bool:
    return nodeid.startswith("tests/spark/") and not nodeid.startswith(OWN_SPARK)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SchedulingByFile:
    return SchedulingByFile(config, log)


def tier_of(item: pytest.Item) -> str:
    """Return the folder or file in `tests` to which the test belongs, whatever the root directory is."""
    return item.nodeid.removeprefix("tests/").partition("/")[0].partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The files that start Spark, and the rules, take longest. Workers start with them, so none runs alone at the end.
    items.sort(
        key=lambda item: (
            not shares_spark(item.nodeid),
            not item.nodeid.startswith(OWN_SPARK),
            reads_sources(item.nodeid),
        )
    )
    for item in items:
        tier = tier_of(item)
        if tier in TIERS:
            item.add_marker(tier)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> None:
    """Load the plugins of the shared cluster, which import a broker, only for the folders whose tests use them."""
    if path.parent == TESTS and path.name in ON_SHARED_CLUSTER:
        for plugin in (SHARED_CLUSTER, FORKED_BROKERS):
            parent.config.pluginmanager.import_plugin(plugin)


def pytest_collection_finish() -> None:
    proof.note_simulated_brokers()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, and exclude their objects from later garbage collections.

    Later collections are rarer than Python's default, which takes 7 % of the time of tests in memory.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record that tests in `cluster` and `clients` run on broker processes and a ZooKeeper process (level REAL).

    Before a test of a folder that does not use the shared cluster, stop this cluster.
    """
    tier = tier_of(item)
    if tier in ("cluster", "clients"):
        proof.note(proof.Level.REAL)
    elif tier != "spark" and (shared := item.config.pluginmanager.get_plugin(SHARED_CLUSTER)):
        shared.stop_shared_cluster()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if reads_sources(item.nodeid) and not (nextitem and reads_sources(nextitem.nodeid)):
        forget_trees()


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """True if the answers in transcripts are to be replaced (`support.deciders.transcripts`)."""
    return bool(request.config.getoption("rewrite"))


@pytest.fixture(autouse=True)
def _watch_loop_of_coroutines(request: pytest.FixtureRequest) -> None:
    function = inspect.unwrap(getattr(request.node, "obj", None) or (lambda: None))
    if inspect.iscoroutinefunction(function):
        request.getfixturevalue("watched_loop")


@pytest.fixture
async def watched_loop() -> AsyncIterator[None]:
    """Fail the test if its event loop handled an exception by logging only, or if a task outlives the test."""
    loop = asyncio.get_running_loop()
    swallowed: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: swallowed.append(context))
    mine = asyncio.all_tasks()
    yield
    if simulated := sys.modules.get("minikafka.simulation.zookeeper"):
        await simulated.close_all()
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - mine - {asyncio.current_task()}
    names = sorted(f"{task.get_name()} {task.get_coro()}" for task in left)
    left.clear()
    gc.collect(1)
    loop.set_exception_handler(None)
    if swallowed:
        messages = [f"{context['message']}: {context.get('exception')!r}" for context in swallowed]
        pytest.fail(
            "the event loop logged exceptions that nobody handled: " + "; ".join(messages),
            pytrace=False,
        )
    if names:
        pytest.fail("tasks outlive the test: " + "; ".join(names), pytrace=False)
