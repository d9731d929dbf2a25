"""The metadata that clients see: read from ZooKeeper in few large reads, without watches (C42).

Every broker reads all partitions in the background when something in ZooKeeper has changed; the longer a read takes,
the longer is the pause before the next. Each answer of ZooKeeper has the zxid of its last write: while this stays the
same, nothing needs to be read, however many partitions there are. The broker also reads the topics of a client's
request, if what it knows about them looks old, and again and again the topics whose change a request waits for. What
this broker reads about its own partitions is shown at once. Invariant: a partition never goes back to an earlier epoch,
or an earlier ISR of an epoch, as long as its topic has the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.model import (
    LEADER_DURING_DELETE,
    NO_EPOCH,
    NO_LEADER,
    Broker,
    BrokerId,
    ClusterMetadata,
    PartitionState,
    TopicPartition,
)
from minikafka.broker.capabilities import Orders
from minikafka.broker.modes.leaders.reads import PartitionReads
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.deciders.leaders.model import PartitionView
from minikafka.zookeeper.nodes import registrations
from minikafka.zookeeper.nodes.leaders import partitions
from minikafka.zookeeper.nodes.leaders.tree import REGISTRATIONS

logger = logging.getLogger(__name__)

_PERIOD_MS: Final = 1_000
"""Time between two reads of all partitions in the background."""
_BROKERS_MS: Final = 250
"""Time between two looks at the names of the registered brokers."""
_IDLE_SHARE: Final = 30
"""The background waits at least this many times as long as its last read has taken."""
_FRESH_MS: Final = 100
"""A client's request waits for a read of its topics if the last one is older."""
_FOLLOW_MS: Final = 20
"""Shortest time between two reads of topics whose change a request waits for."""
_ADDRESS_MS: Final = 100
"""Time between two looks for the address of a leader that has not registered yet."""


class _Moment(NamedTuple):
    """The beginning of a read."""

    ms: int
    zxid: int
    """The read sees all writes up to this zxid. ZooKeeper has no other write as long as it answers with this zxid."""


_NEVER: Final = _Moment(-_FRESH_MS, -1)


class LeadersMetadata:
    """Reads the metadata of one broker, and gives them to its `Orders`."""

    def __init__(
        self,
        ports: Ports,
        reads: PartitionReads,
    ) -> None:
        self._broker_id = ports.broker_id
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._faults = ports.faults
        self._reads = reads
        self._orders: Orders
        self.on_read: Callable[[Mapping[TopicPartition, PartitionView], Collection[BrokerId]], bool]
        """Called after each read of all partitions, with the registered brokers.

        It returns True if all partitions must be read again also if nothing changes.
        """
        self.on_read = lambda views, live: False
        self.brokers: Mapping[BrokerId, Broker] = {}
        """The registered brokers, as they were last read."""
        self.shown: dict[str, dict[int, PartitionState]] = {}
        """Topic -> partition number -> the state that clients see."""
        self._given_brokers: tuple[Broker, ...] = ()
        self._departed: frozenset[BrokerId] = frozenset()
        """Brokers that were registered before and are not now. Leaders remove them from their ISRs at once (S70)."""
        self._topic_ids: dict[str, bytes] = {}
        self._own: dict[TopicPartition, PartitionView] = {}
        """What this broker has read about its own partitions, and not shown yet."""
        self._recent: dict[TopicPartition, PartitionView] = {}
        """The views that clients were given since the current read of all partitions began."""
        self._wanted: set[str] = set()
        self._missing: set[BrokerId] = set()
        self._wants_all = False
        self._next_read: asyncio.Future[bool] | None = None
        """Is done when what clients have asked for was read. None if no such read is waiting."""
        self._reading_wanted = asyncio.Lock()
        self._reading_all = asyncio.Lock()
        self._followed: Counter[str] = Counter()
        """Topics whose change requests wait for -> the number of these requests."""
        self._is_following = False
        self._whole = _NEVER
        """The last read of all partitions."""
        self._of_topics: dict[str, _Moment] = {}
        """Topics that were read after the last read of all partitions -> their last read."""

    def start(self, orders: Orders) -> None:
        """Begin to read in the background."""
        self._orders = orders
        self._tasks.spawn(self._run(), "metadata")

    async def _run(self) -> None:
        due = 0
        while True:
            try:
                await self._clock.sleep(_BROKERS_MS)
                await self._zookeeper.connected()
                began = self._clock.now()
                if began < due:
                    await self._look_for_brokers()
                else:
                    await self.refresh()
                    now = self._clock.now()
                    due = now + max(_PERIOD_MS, _IDLE_SHARE * (now - began))
            except Closed:
                return
            except CoordinationError as error:
                logger.info("the metadata cannot be read: %s %s", type(error).__name__, error)

    async def _look_for_brokers(self) -> None:
        """Read the registrations if brokers have come or gone. Raises CoordinationError."""
        if await self._reads.read_live() != self.brokers.keys():
            await self._read_brokers()
            self._show({})

    async def refresh(self) -> None:
        """Read the registered brokers and all partitions, if they may have changed. Raises CoordinationError."""
        async with self._reading_all:
            # Before the reads: a write during them has a greater zxid, so that the next refresh reads it.
            moment = await self._now()
            if moment.zxid == self._whole.zxid:
                self._whole = moment
                self._of_topics.clear()
                return
            self._recent.clear()
            tps = await partitions.list_partitions(self._zookeeper, self._faults)
            views = await self._reads.many(tps)
            await self._read_brokers()
            if self.on_read(views, self.brokers):
                moment = moment._replace(zxid=_NEVER.zxid)
            views.update(self._recent)  # which may be newer than this read
            self._whole = moment
            self._of_topics.clear()
            self._show(views, is_whole=True)

    async def refresh_topics(self, topics: Collection[str]) -> None:
        """Read these topics, and the registered brokers, if they may have changed. Raises CoordinationError."""
        moment = await self._now()
        if any(self._read_of(topic).zxid != moment.zxid for topic in topics):
            tps = await partitions.list_of_topics(self._zookeeper, sorted(topics), self._faults)
            known = [state.tp for topic in topics for state in self.shown.get(topic, {}).values()]
            views = await self._reads.many([*tps, *known])
            await self._read_brokers()
            self._show(views)
        self._of_topics.update(dict.fromkeys(topics, moment))

    async def _now(self) -> _Moment:
        """Ask ZooKeeper for its last write: a read that begins now sees it. Raises CoordinationError."""
        began = self._clock.now()
        await self._reads.read_live()
        return _Moment(began, self._zookeeper.last_zxid)

    def _read_of(self, topic: str) -> _Moment:
        return self._of_topics.get(topic, self._whole)

    # Requests that wait for a change.

    @contextmanager
    def followed(self, topics: Collection[str]) -> Iterator[None]:
        """Return a context in which these topics are read again and again."""
        wanted = list(topics)
        self._followed.update(wanted)
        if wanted and not self._is_following:
            self._is_following = True
            self._tasks.spawn(self._follow(), "followed-metadata")
        try:
            yield
        finally:
            self._followed.subtract(wanted)
            self._followed = +self._followed  # without the zeros

    async def _follow(self) -> None:
        try:
            while self._followed:
                began = self._clock.now()
                try:
                    await self._zookeeper.connected()
                    await self.refresh_topics(list(self._followed))
                except Closed:
                    return
                except CoordinationError as error:
                    logger.info("the followed topics cannot be read: %s", error)
                await self._clock.sleep(max(_FOLLOW_MS, self._clock.now() - began))
        finally:
            self._is_following = False

    # What this broker knows earlier.

    def show(self, tp: TopicPartition, view: PartitionView) -> None:
        """Show a partition that this broker has read, in the next turn of the event loop."""
        if not self._own:
            self._tasks.spawn(self._show_own(), "own-metadata")
        self._own[tp] = view

    async def _show_own(self) -> None:
        own, self._own = self._own, {}
        live = self._reads.live
        self.brokers = {id_: broker for id_, broker in self.brokers.items() if id_ in live}
        self._show(own)
        for broker_id in live:
            self.find(broker_id)

    def find(self, broker_id: BrokerId) -> None:
        """Look for the address of a leader, until it has registered or leads no partition."""
        if broker_id in self.brokers or broker_id in self._missing:
            return
        if not self._missing:
            self._tasks.spawn(self._find_missing(), "addresses")
        self._missing.add(broker_id)

    async def _find_missing(self) -> None:
        try:
            while self._missing:
                await self._zookeeper.connected()
                try:
                    await self._read_brokers()
                    self._show({})
                except CoordinationError as error:
                    logger.info("the addresses of leaders cannot be read: %s", error)
                leaders = {state.leader for state in self._all_shown()}
                self._missing &= leaders - self.brokers.keys()
                if self._missing:
                    await self._clock.sleep(_ADDRESS_MS)
        except Closed:
            pass
        finally:
            self._missing.clear()

    # Clients.

    def asked(
        self, topics: Collection[str] | None, *, is_missing: bool
    ) -> asyncio.Future[bool] | None:
        """Return a future that is done when these topics (None: all) were read, None if they were read just now."""
        now = self._clock.now()
        if topics is None or (is_missing and not topics):
            if not is_missing and now - self._whole.ms < _FRESH_MS:
                return None
            self._wants_all = True
        else:
            old = topics if is_missing else [one for one in topics if self._is_old(one, now)]
            if not old:
                return None
            self._wanted.update(old)
        if self._next_read is None:
            self._next_read = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._read_wanted(self._next_read), "wanted-metadata")
        return self._next_read

    def _is_old(self, topic: str, now: int) -> bool:
        return now - self._read_of(topic).ms >= _FRESH_MS

    async def _read_wanted(self, done: asyncio.Future[bool]) -> None:
        """Read what clients have asked for since the last such read began. Only one such read is running."""
        async with self._reading_wanted:
            self._next_read = None
            wants_all, self._wants_all = self._wants_all, False
            wanted, self._wanted = self._wanted, set()
            is_read = False
            try:
                await (self.refresh() if wants_all else self.refresh_topics(wanted))
                is_read = True
            except CoordinationError as error:
                name = type(error).__name__
                logger.info("the topics of clients cannot be read: %s %s", name, error)
            finally:
                if not done.done():
                    done.set_result(is_read)

    # Showing.

    async def _read_brokers(self) -> None:
        live = await self._reads.read_live()
        self.brokers = await registrations.read(
            self._zookeeper, sorted(live), self._faults, REGISTRATIONS
        )

    def _show(
        self, views: Mapping[TopicPartition, PartitionView], *, is_whole: bool = False
    ) -> None:
        """Update the broker's metadata with what has changed. `is_whole`: all other partitions are gone."""
        live = frozenset(self.brokers)
        ids: dict[str, bytes] = {}
        changed = []
        for tp, view in views.items():
            if not view.has_readable_roles or view.is_torn:
                continue
            state = metadata_of(tp, view, live)
            if self._is_news(state, view.topic_id):
                changed.append(state)
                if view.topic_id is not None:
                    ids[tp.topic] = view.topic_id
        if is_whole:
            changed += [_hidden(state) for state in self._all_shown() if state.tp not in views]
        else:
            self._recent.update(views)
        self._give(changed, ids)

    def _is_news(self, state: PartitionState, topic_id: bytes | None) -> bool:
        """True if the state differs from what is shown, and is not older."""
        tp = state.tp
        shown = self.shown.get(tp.topic, {}).get(tp.partition)
        if shown is None:
            return state.leader != LEADER_DURING_DELETE
        is_same_topic = self._topic_ids.get(tp.topic) == topic_id
        if is_same_topic and _age(state) < _age(shown) and state.leader != LEADER_DURING_DELETE:
            return False
        return state != shown or not is_same_topic

    def _all_shown(self) -> list[PartitionState]:
        return [state for states in self.shown.values() for state in states.values()]

    def _give(self, changed: list[PartitionState], ids: Mapping[str, bytes]) -> None:
        brokers = self._brokers_to_show()
        if not changed and brokers == self._given_brokers:
            return
        former = {broker.id for broker in self._given_brokers}
        self._departed = (self._departed | former) - self.brokers.keys()
        self._given_brokers = brokers
        self._topic_ids.update(ids)
        for state in changed:
            topic, partition = state.tp
            if state.leader != LEADER_DURING_DELETE:
                self.shown.setdefault(topic, {})[partition] = state
                continue
            self.shown[topic].pop(partition, None)
            if not self.shown[topic]:
                del self.shown[topic]
                self._topic_ids.pop(topic, None)
        self._orders.update_metadata(
            ClusterMetadata(
                self._broker_id,
                tuple(changed),
                brokers,
                tuple(ids.items()),
                tuple(sorted(self._departed)),
            ),
            is_whole=False,
        )

    def _brokers_to_show(self) -> tuple[Broker, ...]:
        """Return the registered brokers; until this broker has registered again, those that were shown before.

        Without this, a client could get an empty list when all sessions have expired. Clients of librdkafka then close
        all connections, and never connect again (S71).
        """
        if self._broker_id not in self.brokers and self._given_brokers:
            return self._given_brokers
        return tuple(self.brokers.values())


def _age(state: PartitionState) -> tuple[int, int]:
    return state.leader_epoch, state.state_version


def _hidden(state: PartitionState) -> PartitionState:
    return state._replace(leader=LEADER_DURING_DELETE)


def role_of(tp: TopicPartition, view: PartitionView, *, is_new: bool = False) -> PartitionState:
    """Return the role that a view gives to the replicas of its partition, which has a leader and an ISR."""
    assert view.leader is not None, view
    return _state(tp, view)._replace(is_new=is_new)


def metadata_of(
    tp: TopicPartition, view: PartitionView, live: frozenset[BrokerId]
) -> PartitionState:
    """Return what clients see of a partition. A partition that is not complete, or is being deleted, is hidden."""
    state = _state(tp, view)
    if view.topic_id is None or view.replicas is None or view.is_being_deleted:
        return state._replace(leader=LEADER_DURING_DELETE)
    return state._replace(offline=tuple(id_ for id_ in state.replicas if id_ not in live))


def _state(tp: TopicPartition, view: PartitionView) -> PartitionState:
    assigned = view.replicas or ()
    target = assigned if view.reassignment is None else view.reassignment.replicas
    adding = tuple(id_ for id_ in target if id_ not in assigned)
    isr = view.isr
    return PartitionState(
        tp,
        NO_LEADER if view.leader is None else view.leader.broker_id,
        view.epoch if view.leader is None else view.leader.epoch,
        () if isr is None else isr.ids,
        -1 if isr is None else isr.version,
        NO_EPOCH,
        (*assigned, *adding),
        adding,
        tuple(id_ for id_ in assigned if id_ not in target),
    )
