"""The object that tests get: each method blocks, or in a coroutine returns a coroutine to await."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar, cast

from minikafka.runtime.clock import SystemClock
from minikafka.testing.background import BackgroundLoop
from minikafka.testing.kit import AsyncMinikafka
from minikafka.testing.server import Server
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.local import BlockingCluster

if TYPE_CHECKING:
    _Verbs = BlockingCluster
else:
    _Verbs = object

WORKER: Final = "PYTEST_XDIST_WORKER"
"""The environment variable that a worker of pytest-xdist has."""
PARENT_POLL_MS: Final = 500

T = TypeVar("T")
P = ParamSpec("P")


def _blocking(
    method: Callable[Concatenate[AsyncMinikafka, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Minikafka, P], T]:
    """Return the method of Minikafka that runs this method of AsyncMinikafka."""

    @wraps(method)
    def call(self: Minikafka, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        return self._loop.run(method(self._kit, *args, **kwargs))

    return call


class ClusterVerbs(BlockingCluster):
    """The methods of a cluster that a test may call. They run in the loop of the kit."""

    def __init__(self, cluster: LocalCluster, loop: BackgroundLoop) -> None:
        super().__init__(cluster)
        self._loop = loop

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        return self._loop.run(work)


class Minikafka(_Verbs):
    """A Kafka with what tests need: `with Minikafka(brokers=1) as kafka`, or `async with`.

    The arguments are those of LocalCluster. `external`: host:port of another Kafka, which has no fault verbs, in the
    place of these arguments. `label`: the beginning of names of topics, groups and transactional ids. `refuse`: called
    with a text when a test uses a fault verb of another Kafka; None: raise ClusterError.

    In a coroutine, each method returns a coroutine to await; elsewhere it blocks. Besides the methods here, it has
    those of LocalCluster. Methods raise ClusterError and KafkaError.
    """

    def __init__(
        self,
        *args: Any,
        external: str = "",
        label: str = "minikafka",
        refuse: Callable[[str], NoReturn] | None = None,
        **kwargs: Any,
    ) -> None:
        self._new_cluster: Callable[[], LocalCluster] = lambda: LocalCluster(*args, **kwargs)
        self._external = external
        self._refuse = refuse
        self._label = label
        self._watch: Future[None] | None = None

    def __enter__(self) -> Minikafka:
        self._loop = BackgroundLoop()
        with ExitStack() as failed:
            failed.callback(self._loop.close)
            self._loop.wait(self._start())
            failed.pop_all()
        return self

    async def __aenter__(self) -> AsyncMinikafka:
        self._loop = BackgroundLoop()
        with ExitStack() as failed:
            failed.callback(self._loop.close)
            started: Any = self._loop.run(self._start())
            await started
            failed.pop_all()
        return cast("AsyncMinikafka", self)  # its methods return coroutines here

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.wait(self._end(error))
        self._loop.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended: Any = self._loop.run(self._end(error))
        await ended
        self._loop.close()

    async def _start(self) -> None:
        cluster = None if self._external else self._new_cluster()
        if cluster is not None:
            await cluster.__aenter__()
        bootstrap = self._external if cluster is None else cluster.bootstrap
        self._server = Server(cluster, bootstrap, self._refuse)
        self._verbs = None if cluster is None else ClusterVerbs(cluster, self._loop)
        self._kit = AsyncMinikafka(self._server, self._label)
        if cluster is None:
            await self._server.client().describe_cluster()  # raises KafkaError if nobody answers
        if cluster is not None and self._server.repairs is not None:
            self._server.repairs.settle()
            if WORKER in os.environ:
                self._watch = self._loop.begin(_stop_after(os.getppid(), cluster))

    async def _end(self, error: BaseException | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self._server.close()
        if self._server.cluster is not None:
            await self._server.cluster.__aexit__(type(error) if error else None, error, None)

    def opened(self, stack: ExitStack, kits: list[Minikafka]) -> Any:
        """Enter this object into `stack`, add it to `kits` and return it; in a coroutine, return a coroutine that does.

        The end of `stack` stops the cluster.
        """
        __tracebackhide__ = True
        self._loop = BackgroundLoop()

        async def entered() -> Minikafka:
            await self._start()
            stack.push(self.__exit__)
            kits.append(self)
            return self

        return self._loop.run(entered())

    # Tests that share it

    def for_test(self, label: str) -> Minikafka:
        """Return an object for one test, with topics and names of its own, on the same Kafka."""
        shared = Minikafka(label=label)
        shared._loop, shared._server, shared._verbs = self._loop, self._server, self._verbs
        shared._kit = AsyncMinikafka(self._server, label)
        return shared

    def end_test(self) -> None:
        """Delete the topics of the test in the background."""
        if self._kit.topics:
            self._loop.begin(self._server.delete_later(self._kit.topics))

    def repair(self) -> None:
        """Start, resume and heal what a test has harmed; wait until all replicas are in sync. Raises ClusterError."""
        repairs = self._server.repairs
        if repairs is not None and not repairs.is_whole:
            self._loop.wait(repairs.repair())

    # What needs no waiting

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(BlockingCluster, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._server.verbs(name)
        return getattr(self._verbs, name)

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, up or down."""
        return self._server.bootstrap

    @property
    def topics(self) -> list[str]:
        """The names of the topics that `topic` has created."""
        return self._kit.topics

    @property
    def groups(self) -> list[str]:
        """The names that `group` has returned."""
        return self._kit.groups

    def group(self, name: str = "") -> str:
        """Return the name of a consumer group that no other test uses. `name`: how it begins."""
        return self._kit.group(name)

    def transactional_id(self, name: str = "") -> str:
        """Return a transactional id that no other test uses. `name`: how it begins."""
        return self._kit.transactional_id(name)

    topic = _blocking(AsyncMinikafka.topic)
    produce = _blocking(AsyncMinikafka.produce)
    records = _blocking(AsyncMinikafka.records)
    leader = _blocking(AsyncMinikafka.leader)
    wait_for_group = _blocking(AsyncMinikafka.wait_for_group)
    wait_for_lag = _blocking(AsyncMinikafka.wait_for_lag)


async def _stop_after(parent: int, cluster: LocalCluster) -> None:
    """Stop the cluster when the parent of this process has ended.

    A worker of pytest-xdist lives for some time after its parent was killed, because it ends its current test first.
    """
    clock = SystemClock()
    while os.getppid() == parent:
        await clock.sleep(PARENT_POLL_MS)
    await cluster.stop()
