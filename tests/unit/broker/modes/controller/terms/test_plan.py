"""Plans, compared with the writes and requests that the same controller makes when the operation really happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
from support.brokers.controller_bench import (
    T0,
    Candidate,
    ControllerBench,
    create_topic,
    partitions_of,
    state_of,
    until,
)

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsr,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.broker.modes.controller.terms import controller
from minikafka.deciders.controller.machine import ControllerMachine
from minikafka.zookeeper.nodes import layout

T1 = TopicPartition("t", 1)
Told = list[tuple[str, dict[str, Any]]]


class Obeyed(ControllerBench):
    """A controller, four brokers that carry out every request, and a topic of two partitions."""

    def __init__(self) -> None:
        super().__init__(auto_leader_rebalance_enable=False)
        self.register_broker(4)
        self.channels.answer = obedient

    async def elected(self) -> Self:
        await super().elected()
        create_topic(self.ensemble, "t", [2, 3, 4], [3, 4, 2])
        await until(lambda: self.state(T1))
        await self.idle()
        return self

    def since(self, mark: int) -> Told:
        """Return the writes and requests that the controller has really made, from ledger line `mark` on."""
        return written_and_sent(
            [{"kind": kind, **fields} for kind, _, fields in self.ledger.lines[mark:]]
        )


def obedient(_: int, request: ControllerRequest) -> ControllerResponse:
    told = () if isinstance(request, UpdateMetadataRequest) else request.partitions
    return ControllerResponse(0, tuple((state.tp, 0) for state in told))


def written_and_sent(lines: list[dict[str, Any]]) -> Told:
    """Return the write and request lines without the fields that a plan lacks: zxid, queue length and cause."""
    return [
        (line["kind"], {k: v for k, v in line.items() if k not in ("zxid", "queued", "cause")})
        for line in lines
        if line["kind"] in ("write", "request")
    ]


@pytest.fixture
async def bench() -> AsyncIterator[Obeyed]:
    bench = await Obeyed().elected()
    yield bench
    await bench.close()


async def test_plan_to_kill_a_broker_equals_the_effects_of_its_death(bench: Obeyed) -> None:
    plan = await bench.service.plan({"operation": "kill-broker", "broker": 2})
    mark = len(bench.ledger.lines)
    bench.ensemble.end_session(102)
    await until(lambda: (s := state_of(bench.ensemble, T0)) and s.leader == 3)
    await bench.idle()
    real = bench.since(mark)
    assert written_and_sent(plan) == real
    assert [kind for kind, _ in real].count("write") >= 1


async def test_plan_shows_the_conflict_with_a_state_that_the_leader_has_changed(
    bench: Obeyed,
) -> None:
    """The leader removes broker 4 from the ISR. The controller has not read the new state yet."""
    bench.join(2, 3)
    plan = await bench.service.plan({"operation": "kill-broker", "broker": 2})
    mark = len(bench.ledger.lines)
    bench.ensemble.end_session(102)
    await until(lambda: (s := state_of(bench.ensemble, T0)) and s.leader == 3)
    await bench.idle()
    outcomes = [line["outcome"] for line in plan if line["kind"] == "write"]
    assert outcomes[0] == "conflict"
    assert outcomes[-1] == "ok"
    assert written_and_sent(plan) == bench.since(mark)


async def test_plan_is_refused_when_another_controller_was_elected_meanwhile(
    bench: Obeyed,
) -> None:
    bench.ensemble.put(layout.CONTROLLER_EPOCH, b"9")
    with pytest.raises(KafkaError) as refused:
        await bench.service.plan({"operation": "kill-broker", "broker": 2})
    assert refused.value.code is ErrorCode.NOT_CONTROLLER


async def test_plan_is_refused_when_zookeeper_never_answers_the_controller(
    bench: Obeyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "_PLAN_TIMEOUT_MS", 30)
    monkeypatch.setattr(ControllerMachine, "is_busy", True)
    with pytest.raises(KafkaError, match="the controller waits for ZooKeeper") as refused:
        async with asyncio.timeout(5):
            await bench.service.plan({"operation": "kill-broker", "broker": 2})
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_plan_to_delete_a_topic_equals_the_effects_of_its_deletion_mark(
    bench: Obeyed,
) -> None:
    plan = await bench.service.plan({"operation": "delete-topic", "topics": ["t"]})
    mark = len(bench.ledger.lines)
    bench.ensemble.put(layout.delete_topic_path("t"))
    await until(lambda: layout.delete_topic_path("t") not in bench.ensemble.nodes)
    await bench.idle()
    assert written_and_sent(plan) == bench.since(mark)
    assert layout.topic_path("t") not in bench.ensemble.nodes


async def test_plan_to_reassign_equals_the_effects_of_the_reassignment(
    bench: Obeyed,
) -> None:
    plan = await bench.service.plan({"operation": "reassign", "targets": [["t", 0, [3, 4, 1]]]})
    mark = len(bench.ledger.lines)
    await bench.service.alter_reassignments({T0: (3, 4, 1)})
    await bench.idle()
    state = state_of(bench.ensemble, T0)
    assert state is not None
    joined = LeaderAndIsr(state.leader, state.leader_epoch, (*state.isr, 1), 1, state.state_version)
    bench.ensemble.put(layout.state_path(T0), layout.encode_state(joined))
    await until(lambda: (s := state_of(bench.ensemble, T0)) and s.isr == (3, 4, 1))
    await bench.idle()
    assert await bench.service.reassignments() == {}
    assert written_and_sent(plan) == bench.since(mark)
    assert any(line["kind"] == "assumed" and line.get("broker") == 1 for line in plan)


async def test_plan_to_elect_equals_the_effects_of_the_election(bench: Obeyed) -> None:
    state = state_of(bench.ensemble, T0)
    assert state is not None
    moved = LeaderAndIsr(3, state.leader_epoch + 1, state.isr, 1, state.state_version)
    bench.ensemble.put(layout.state_path(T0), layout.encode_state(moved))
    bench.ensemble.put(f"{layout.ISR_CHANGE_PREFIX}0000000001", layout.encode_isr_change([T0]))
    await until(lambda: partitions_of(bench.service)[0]["leader"] == 3)
    await bench.idle()
    question = {"operation": "elect", "unclean": False, "partitions": [["t", 0]]}
    plan = await bench.service.plan(question)
    mark = len(bench.ledger.lines)
    await bench.service.elect_leaders(unclean=False, partitions=[T0])
    assert written_and_sent(plan) == bench.since(mark)
    assert written_and_sent(plan)[0][1]["operations"][0]["data"].count('"leader":2') == 1


async def test_plan_to_kill_the_controller_contains_election_and_failover(
    bench: Obeyed,
) -> None:
    plan = await bench.service.plan({"operation": "kill-broker", "broker": 1})
    writes = [line for line in plan if line["kind"] == "write"]
    assert writes[0]["operations"][0]["path"] == "/controller"
    assert {line["cause"].partition("-")[0] for line in plan if line["cause"]} == {"2"}
    assert [line["text"] for line in plan if line["kind"] == "assumed"] == [
        "broker 1 dies, its session expires",
        "broker 2 is elected controller",
    ]


async def test_plan_to_reassign_to_a_dead_broker_contains_the_refusal_and_no_write(
    bench: Obeyed,
) -> None:
    plan = await bench.service.plan({"operation": "reassign", "targets": [["t", 0, [9]]]})
    (answer,) = [line for line in plan if line["kind"] == "answer"]
    assert answer["results"][0]["code"] == "INVALID_REPLICA_ASSIGNMENT"
    assert written_and_sent(plan) == []


async def test_planning_an_operation_changes_nothing_and_logs_nothing(
    bench: Obeyed, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = {path: (node.data, node.version) for path, node in bench.ensemble.nodes.items()}
    before = bench.shown()
    mark, sent = len(bench.ledger.lines), len(bench.channels.sent)
    with caplog.at_level(logging.DEBUG):
        for question in (
            {"operation": "kill-broker", "broker": 2},
            {"operation": "kill-broker", "broker": 1},
            {"operation": "delete-topic", "topics": ["t"]},
            {"operation": "reassign", "targets": [["t", 0, [3, 4, 1]]]},
            {"operation": "elect", "unclean": False, "partitions": None},
        ):
            await bench.service.plan(question)
    assert bench.shown() == before
    assert {p: (n.data, n.version) for p, n in bench.ensemble.nodes.items()} == nodes
    assert len(bench.ledger.lines) == mark
    assert len(bench.channels.sent) == sent
    assert [
        r
        for r in caplog.records
        if r.name.startswith(("minikafka.deciders.controller", "state-change"))
    ] == []
    assert logging.root.manager.disable == logging.NOTSET


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"operation": "kill-broker", "broker": 9}, ErrorCode.BROKER_NOT_AVAILABLE),
        ({"operation": "delete-topic", "topics": ["u"]}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            {"operation": "reassign", "targets": [["t", 7, [1]]]},
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ({"operation": "dance"}, ErrorCode.INVALID_REQUEST),
        ({"operation": "kill-broker"}, ErrorCode.INVALID_REQUEST),
        ({"operation": "reassign", "targets": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_controller_refuses_to_plan_invalid_operations(
    bench: Obeyed, question: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        await bench.service.plan(question)
    assert refused.value.code is code


async def test_broker_that_is_not_the_controller_refuses_to_plan_an_operation(
    bench: Obeyed,
) -> None:
    other = Candidate(bench.ensemble, 5)
    with pytest.raises(KafkaError) as refused:
        await other.service.plan({"operation": "kill-broker", "broker": 2})
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
