"""Administrators' writes: each write is one multi that begins with a check of the controller epoch."""

from __future__ import annotations

from typing import Any

import pytest
from support.brokers.cold import Cold
from support.ledger.recording_ledger import RecordingLedger

from minikafka.base.errors import ControllerMoved, KafkaError, MultiFailed, StaleSession
from minikafka.base.ports import Check, Create
from minikafka.broker.ledger.record import NOTHING, WRITE
from minikafka.broker.modes.controller.fenced_writes import FencedWrites
from minikafka.zookeeper.nodes import layout


def writes_of(cold: Cold, ledger: Any = NOTHING) -> FencedWrites:
    controller: Any = cold.controller
    return FencedWrites(cold.session, controller, ledger)


@pytest.mark.row("R2")
async def test_fenced_write_begins_with_a_check_of_the_controller_epoch() -> None:
    cold = Cold()
    await writes_of(cold).write(Create("/a", b""))
    assert cold.session.multis == [[Check(layout.CONTROLLER_EPOCH, 0), Create("/a", b"")]]


async def test_fenced_write_is_not_sent_by_a_broker_that_is_not_the_controller() -> None:
    cold = Cold(broker_id=1, controller_id=2)
    with pytest.raises(KafkaError):
        await writes_of(cold).write(Create("/a", b""))
    assert cold.session.multis == []


async def test_fenced_write_is_recorded_in_the_ledger_even_when_zookeeper_refuses_it() -> None:
    cold, ledger = Cold(), RecordingLedger()
    writes = writes_of(cold, ledger)
    await writes.write(Create("/a", b"x"))
    with pytest.raises(MultiFailed):
        await writes.write(Create("/a", b"x"))
    noted = [
        (kind, cause, fields["outcome"], fields["operations"][0]["path"])
        for kind, cause, fields in ledger.lines
    ]
    assert noted == [(WRITE, "", "ok", "/a"), (WRITE, "", "conflict", "/a")]


async def test_fenced_write_raises_controller_moved_when_the_epoch_has_changed() -> None:
    cold = Cold()
    cold.ensemble.put(layout.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMoved):
        await writes_of(cold).write(Create("/a", b""))
    assert "/a" not in cold.ensemble.nodes


async def test_fenced_write_is_refused_in_a_later_zookeeper_session() -> None:
    cold = Cold()
    await cold.session.attach()
    cold.controller.generation = cold.session.generation
    await cold.session.expire()
    await cold.session.attach()
    with pytest.raises(StaleSession):
        await writes_of(cold).write(Create("/a", b""))
    assert "/a" not in cold.ensemble.nodes
