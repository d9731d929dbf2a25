"""The one door to write through, and what a client hears when it was shut."""

from __future__ import annotations

import pytest
from support.cold import Cold
from support.recording_ledger import RecordingLedger

from minikafka.base.errors import (
    BadVersion,
    ControllerMoved,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NoAuth,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.ports import Check, Create
from minikafka.broker.admin.fenced import FencedWrites, refusal
from minikafka.ledger.record import WRITE
from minikafka.zk import layout


@pytest.mark.row("R2")
async def test_every_write_begins_with_the_check_of_the_epoch() -> None:
    cold = Cold()
    await FencedWrites(cold.session, cold.controller).write([Create("/a", b"")])
    assert cold.session.multis == [[Check(layout.CONTROLLER_EPOCH, 0), Create("/a", b"")]]


async def test_a_broker_that_does_not_rule_writes_nothing() -> None:
    cold = Cold(broker_id=1, controller_id=2)
    with pytest.raises(KafkaError):
        await FencedWrites(cold.session, cold.controller).write([Create("/a", b"")])
    assert cold.session.multis == []


async def test_the_ledger_tells_of_every_write_and_of_those_that_were_refused() -> None:
    cold, ledger = Cold(), RecordingLedger()
    writes = FencedWrites(cold.session, cold.controller, ledger)
    await writes.write([Create("/a", b"x")])
    with pytest.raises(MultiFailed):
        await writes.write([Create("/a", b"x")])
    told = [
        (kind, cause, fields["outcome"], fields["operations"][0]["path"])
        for kind, cause, fields in ledger.lines
    ]
    assert told == [(WRITE, "", "ok", "/a"), (WRITE, "", "conflict", "/a")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.INVALID_PARTITIONS, "few"), ErrorCode.INVALID_PARTITIONS),
        (MultiFailed(0, BadVersion()), ErrorCode.NOT_CONTROLLER),
        (MultiFailed(1, NoNode()), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ControllerMoved(), ErrorCode.NOT_CONTROLLER),
        (NotConnected(), ErrorCode.NOT_CONTROLLER),
        (StaleSession(), ErrorCode.NOT_CONTROLLER),
        (OutcomeUnknown(), ErrorCode.REQUEST_TIMED_OUT),
        (NoAuth(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_each_failure_has_the_code_that_a_client_can_act_upon(
    error: Exception, code: ErrorCode
) -> None:
    got, message = refusal(error, "topic t")
    assert got == code
    assert message
