"""Plans: what the controller would do, found by running the controller's code with an imagined ZooKeeper and brokers.

A copy of the active machine handles the event that the question describes. The plan consists of the ledger
lines of this event and its consequences. A real term writes its lines with the same code, so that only the
times, zxids and ids differ. Each write is checked as ZooKeeper checks it. A plan assumes that no other client
writes in the meantime, that every broker carries out every request, and that the new replicas of a reassignment
catch up. Lines of the kind `assumed` state what the plan assumes. Invariant: a plan changes neither the active
machine nor ZooKeeper nor a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, LeaderAndIsr, TopicPartition
from minikafka.base.ports import Clock, ZooKeeper
from minikafka.broker.ledger.record import ANSWER, DECISION, EVENT, REQUEST, STEP, WRITE
from minikafka.broker.modes.controller.terms.imagined import ImaginedChannels, ImaginedStore
from minikafka.broker.modes.controller.terms.lines import write_line
from minikafka.broker.modes.controller.terms.store import ControllerStore
from minikafka.broker.modes.controller.terms.term import Term
from minikafka.broker.modes.controller.terms.term_session import TermSession
from minikafka.broker.step_gate import StepGate
from minikafka.deciders.controller.commands import Command
from minikafka.deciders.controller.events import (
    BrokersChanged,
    DeletionsChanged,
    ElectionRequested,
    Event,
    IsrChanged,
    ReassignmentsRequested,
)
from minikafka.deciders.controller.machine import ControllerMachine
from minikafka.zookeeper.nodes import admin_requests, election, layout, partition_states

ASSUMED: Final = "assumed"
"""Kind of the lines that state an assumption of the plan, in the field `text`."""
KILL_BROKER: Final = "kill-broker"
REASSIGN: Final = "reassign"
DELETE_TOPIC: Final = "delete-topic"
ELECT: Final = "elect"
_SHOWN: Final = frozenset({EVENT, STEP, DECISION, WRITE, REQUEST, ANSWER, ASSUMED})
_ONLY_REAL: Final = ("zxid", "queued")
_CALLER: Final = 0


class _Lines:
    """The ledger of a plan, in memory. Only lines of the kinds in `_SHOWN` are kept."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Add a line if its kind is in `_SHOWN`, without the fields that only a real term has."""
        if kind in _SHOWN:
            shown = {name: value for name, value in fields.items() if name not in _ONLY_REAL}
            self.lines.append({"kind": kind, "cause": cause, **shown})

    def assume(self, text: str, **fields: object) -> None:
        """Add a line of kind `assumed` with this text."""
        self.record(ASSUMED, "", {"text": text, **fields})


class _SilentMachine(ControllerMachine):
    """A ControllerMachine that logs nothing, because the events of a plan do not really happen."""

    def handle(self, event: Event, now: int, cause: str = "") -> list[Command]:
        """Handle the event with all logging turned off.

        No log line of another task is lost, because this call never awaits.
        """
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            return super().handle(event, now, cause)
        finally:
            logging.disable(before)


class Planner:
    """The maker of one plan, from the current state of the active controller's machine."""

    def __init__(
        self,
        machine: ControllerMachine,
        zookeeper: ZooKeeper,
        config: BrokerConfig,
        clock: Clock,
        generation: int,
        epoch_version: int,
    ) -> None:
        self._machine = machine
        self._config = config
        self._clock = clock
        self._generation = generation
        self._epoch_version = epoch_version
        self._store = ImaginedStore(zookeeper, clock)
        self._channels = ImaginedChannels()
        self._ledger = _Lines()
        self._questions: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            KILL_BROKER: self._kill_broker,
            REASSIGN: self._reassign,
            DELETE_TOPIC: self._delete_topic,
            ELECT: self._elect,
        }

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the ledger lines of the plan, in order.

        `question` has the key `operation`; the other keys depend on its value:
        - kill-broker: `broker`.
        - reassign: `targets`, a list of [topic, partition, brokers]. If brokers is None, the reassignment is cancelled.
        - delete-topic: `topics`.
        - elect: `unclean`, and `partitions`, a list of [topic, partition]. If `partitions` is None, the election
          is for all partitions of `topics`, or of the cluster if `topics` is absent.

        Raises KafkaError: INVALID_REQUEST for a malformed question, BROKER_NOT_AVAILABLE for a broker that is
        not alive, UNKNOWN_TOPIC_OR_PARTITION. Raises CoordinationError where a controller would fail with it.
        """
        make = self._questions.get(str(question.get("operation")))
        if make is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the operation of a plan must be one of {', '.join(self._questions)}",
            )
        try:
            await make(question)
        except (KeyError, TypeError, ValueError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"malformed question: {error!r}") from error
        return self._ledger.lines

    # Questions.

    async def _kill_broker(self, question: Mapping[str, Any]) -> None:
        broker = int(question["broker"])
        live = self._machine.context.brokers
        if broker not in live:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker} is not alive; the live brokers are {', '.join(map(str, sorted(live)))}",
            )
        self._ledger.assume(f"broker {broker} dies, its session expires", broker=broker)
        await self._store.remove(layout.broker_path(broker))
        if broker == self._machine.context.controller_id:
            await self._store.remove(layout.CONTROLLER)
            await self._fail_over(broker)
            return
        left = {id_: info for id_, info in live.items() if id_ != broker}
        await self._run(self._twin(), BrokersChanged(left))

    async def _reassign(self, question: Mapping[str, Any]) -> None:
        targets = {
            self._known(str(topic), int(number)): None if to is None else tuple(map(int, to))
            for topic, number, to in question["targets"]
        }
        term = self._twin()
        await self._run(term, ReassignmentsRequested(_CALLER, targets))
        await self._catch_up(term, list(targets))

    async def _delete_topic(self, question: Mapping[str, Any]) -> None:
        topics = [str(topic) for topic in question["topics"]]
        for topic in topics:
            self._topic(topic)
            await self._store.put(*admin_requests.deletion_mark(topic)[:2])
        self._ledger.assume(f"{', '.join(topics)} marked in {layout.DELETE_TOPICS}", topics=topics)
        marked = self._machine.context.deletions.union(topics)
        await self._run(self._twin(), DeletionsChanged(marked))

    async def _elect(self, question: Mapping[str, Any]) -> None:
        chosen = question["partitions"]
        partitions = None
        if chosen is not None:
            partitions = tuple(self._known(str(topic), int(number)) for topic, number in chosen)
        elif question.get("topics"):
            partitions = tuple(tp for topic in question["topics"] for tp in self._topic(str(topic)))
        event = ElectionRequested(_CALLER, bool(question["unclean"]), partitions)
        await self._run(self._twin(), event)

    def _known(self, topic: str, number: int) -> TopicPartition:
        tp = TopicPartition(topic, number)
        if tp not in self._machine.context.assignments:
            raise _unknown(str(tp) if topic in self._machine.context.topics else topic)
        return tp

    def _topic(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        known = self._machine.context.topics.get(topic)
        if known is None:
            raise _unknown(topic)
        return list(known)

    # Running.

    def _twin(self) -> Term:
        """Return a Term that runs a copy of the active controller's machine on the imagined ZooKeeper."""
        context = self._machine.context
        machine = _SilentMachine(context.controller_id, context.epoch, self._machine.settings)
        machine.copy_from(self._machine)
        return self._term(machine, self._epoch_version)

    def _term(self, machine: ControllerMachine, epoch_version: int) -> Term:
        session = TermSession(self._store, self._generation, epoch_version, self._ledger)

        async def holds_node() -> bool:
            return True

        return Term(
            self._store,
            ControllerStore(session, self._config),
            self._channels,
            self._clock,
            machine,
            holds_node,
            self._ledger,
            StepGate(),
        )

    async def _run(self, term: Term, event: Event) -> None:
        """Handle the event and its consequences; imagined brokers answer every request with success."""
        await term.handle(event)
        await term.process_queue()
        while self._channels.answer():
            await term.process_queue()

    async def _fail_over(self, dead: BrokerId) -> None:
        """Plan the death of the controller.

        The other live broker with the lowest id is assumed to be elected; it loads the cluster.
        """
        context = self._machine.context
        others = sorted(id_ for id_ in context.brokers if id_ != dead)
        if not others:
            self._ledger.assume("no broker is left, so no controller is elected")
            return
        successor, epoch = others[0], context.epoch + 1
        self._ledger.assume(f"broker {successor} is elected controller", broker=successor)
        check = election.fence(self._epoch_version)
        operations = election.candidacy(successor, epoch, self._epoch_version, wall_ms=0)
        stats = await self._store.multi(operations)
        self._ledger.record(WRITE, f"{epoch}-0", write_line(check, operations, stats=stats))
        machine = _SilentMachine(successor, epoch, self._machine.settings)
        term = self._term(machine, self._epoch_version + 1)
        await self._run(term, await term.reader.load())

    async def _catch_up(self, term: Term, partitions: Sequence[TopicPartition]) -> None:
        """Assume that the target replicas of the partitions join the ISR one by one, if their brokers are alive."""
        context = term.machine.context
        for tp in partitions:
            state, assignment = context.leadership.get(tp), context.assignments.get(tp)
            if tp not in context.reassigning or state is None or assignment is None:
                continue
            for broker in assignment.target:
                if broker in state.isr:
                    continue
                if not context.is_online(tp, broker):
                    self._ledger.assume(f"{tp} waits: broker {broker} is not alive", broker=broker)
                    break
                isr = (*state.isr, broker)
                state = await self._written(tp, replace(state, isr=isr))
                self._ledger.assume(
                    f"broker {broker} catches up with {tp}, and leader {state.leader} takes it "
                    f"into the ISR",
                    broker=broker,
                    isr=isr,
                    partitions={tp.topic: [tp.partition]},
                )
            await self._run(term, IsrChanged((), {tp: state}))

    async def _written(self, tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
        """Write a partition's state as its leader does; return the state with its new version."""
        (stat,) = await self._store.multi([partition_states.write(tp, state)])
        assert stat is not None
        return replace(state, state_version=stat.version)


def _unknown(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} does not exist")
