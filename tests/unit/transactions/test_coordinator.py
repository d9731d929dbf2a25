"""The requests of one producer, from its first InitProducerId to the end of its transaction."""

from __future__ import annotations

from minikafka.base.coordinators import Answer, Append
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.transactions.coordinator import TransactionCoordinator
from minikafka.transactions.messages.commands import AllocateProducerId, SendMarkers
from minikafka.transactions.messages.requests import (
    AddPartitionsRequest,
    EndRequest,
    InitProducerIdRequest,
)
from minikafka.transactions.messages.responses import (
    AddPartitionsResponse,
    EndResponse,
    InitProducerIdResponse,
)
from minikafka.transactions.settings import TransactionSettings

TP = TopicPartition("orders", 0)


def one(commands, kind):
    (command,) = commands
    assert isinstance(command, kind)
    return command


def test_producer_begins_and_commits_a_transaction():
    core = TransactionCoordinator(TransactionSettings(), lambda: 1_000, 1)
    core.begin_load(0, 7)
    core.loaded(0, 7, 0)

    init = InitProducerIdRequest("copy", 60_000)
    allocate = one(core.init_producer_id(init, "init", 0), AllocateProducerId)
    append = one(core.allocated(allocate.token, 42, 0, 0), Append)
    started = one(core.appended(append.token, 0, 0), Answer)
    append = one(core.add_partitions(AddPartitionsRequest("copy", 42, 0, [TP]), "add", 0), Append)
    added = one(core.appended(append.token, 0, 0), Answer)
    append = one(core.end(EndRequest("copy", 42, 0, True), "end", 0), Append)
    ended, markers = core.appended(append.token, 0, 0)
    append = one(core.markers_written(markers.ended, [TP], 0), Append)
    assert core.appended(append.token, 0, 0) == []

    assert started == Answer("init", InitProducerIdResponse(0, 42, 0))
    assert added == Answer("add", AddPartitionsResponse({TP: 0}))
    assert ended == Answer("end", EndResponse(0))
    assert isinstance(markers, SendMarkers)
    assert markers.partitions == [TP]
    assert markers.ended[:5] == ("copy", 42, 0, 7, True)


def test_repeated_end_and_known_partitions_are_answered_after_an_append():
    core = TransactionCoordinator(TransactionSettings(), lambda: 1_000, 1)
    core.begin_load(0, 7)
    core.loaded(0, 7, 0)
    allocate = one(
        core.init_producer_id(InitProducerIdRequest("copy", 60_000), "init", 0), AllocateProducerId
    )
    core.appended(one(core.allocated(allocate.token, 42, 0, 0), Append).token, 0, 0)
    add = AddPartitionsRequest("copy", 42, 0, [TP])
    core.appended(one(core.add_partitions(add, "add", 0), Append).token, 0, 0)

    again = one(core.add_partitions(add, "again", 0), Append)
    refused = one(core.appended(again.token, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), Answer)
    end = EndRequest("copy", 42, 0, True)
    _, markers = core.appended(one(core.end(end, "end", 0), Append).token, 0, 0)
    core.appended(one(core.markers_written(markers.ended, [TP], 0), Append).token, 0, 0)
    again = one(core.end(end, "again", 0), Append)
    unled = one(core.appended(again.token, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), Answer)
    again = one(core.end(end, "again", 0), Append)
    ended = one(core.appended(again.token, 0, 0), Answer)

    assert refused.response == AddPartitionsResponse({TP: ErrorCode.NOT_COORDINATOR})
    assert unled.response == EndResponse(ErrorCode.NOT_COORDINATOR)
    assert ended.response == EndResponse(0)
