"""Requests of two versions of the protocol between brokers: their bytes, and fields that only one version knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brokers.endpoints import endpoints

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    Broker,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    RequestedTopic,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.protocol_versions import UNVERSIONED, VERSION, VERSIONS, mismatch
from minikafka.broker.rpc import coordination, coordinator_calls, messages
from minikafka.broker.rpc.coordination import LookReason
from minikafka.broker.rpc.coordinator_calls import MarkerRow, VerifyRow
from minikafka.broker.rpc.encoding import pack, unpack
from minikafka.broker.rpc.envelope import version_for, with_version, without_version
from minikafka.broker.rpc.fields import Body
from minikafka.broker.rpc.links import LINKS, BrokenLink, LinkReport, decode_links, encode_links

ENCODINGS = Path(__file__).with_name("encodings")
TP = TopicPartition("orders", 3)
BROKERS = (
    Broker(1, endpoints("10.0.0.1", 9092, "10.0.0.1", 19092), epoch=7, rack="a", versions=VERSIONS),
)
STATE = PartitionState(TP, 1, 7, (1, 2), 9, 4, (1, 2, 3), (3,), (2,), (2,), True)
IDS = (("orders", bytes(range(16))),)
REQUESTS: dict[str, ControllerRequest] = {
    "leader_and_isr": LeaderAndIsrRequest(1, 4, 7, (STATE,), BROKERS, IDS, "4-9"),
    "update_metadata": UpdateMetadataRequest(1, 4, 7, (STATE,), BROKERS, IDS, "4-9", (2,)),
    "stop_replica": StopReplicaRequest(1, 4, 7, (StopReplicaPartition(TP, 8, True),), "4-9"),
}


class Message(NamedTuple):
    """One message between brokers: its body, how it is decoded, and which of its keys have no default."""

    body: Body
    decode: Callable[[Any], object]
    needed: frozenset[str] = frozenset()


MESSAGES = {
    "controller_response": Message(
        messages.encode_response(ControllerResponse(0, ((TP, 6),))), messages.decode_response
    ),
    "registration": Message(messages.encode_registration(2, 77), messages.decode_registration),
    "report": Message(messages.encode_report(2, 77, 3), messages.decode_report),
    "remaining": Message(messages.encode_remaining([TP]), messages.decode_remaining),
    "ends_asked": Message(messages.encode_ends_asked([TP]), messages.decode_ends_asked),
    "ends": Message(messages.encode_ends({TP: 12}), messages.decode_ends),
    "create_topics": Message(
        messages.encode_create_topics([RequestedTopic("t", 6, 3, configs={"a.b": "c"})]),
        messages.decode_create_topics,
    ),
    "created": Message(messages.encode_created([("t", 36)]), messages.decode_created),
    "challenge": Message(
        messages.encode_challenge("17-ab", 5),
        messages.decode_challenge,
        frozenset({"challenge", "wall_ms"}),
    ),
    "topic_in_work": Message(coordination.encode_topic("t"), coordination.decode_topic),
    "in_work": Message(coordination.encode_answer(in_work=True), coordination.decode_answer),
    "look_again": Message(
        coordination.encode_look(LookReason.PREFERRED, [TP]), coordination.decode_look
    ),
    "write_markers": Message(
        coordinator_calls.encode_markers([MarkerRow(7, 1, 3, True, ((TP, 5),))]),
        coordinator_calls.decode_markers,
    ),
    "verify_transactions": Message(
        coordinator_calls.encode_verifications([VerifyRow("job", 7, 1, (TP,))]),
        coordinator_calls.decode_verifications,
    ),
    LINKS: Message(
        encode_links(
            1,
            7,
            {2: LinkReport(5, (BrokenLink(3, "fetch", "h:9092", 1, 2, "refused"),), {3: 4})},
        ),
        decode_links,
    ),
    "errors": Message(
        coordinator_calls.encode_errors([[0, 6]]),
        lambda body: coordinator_calls.decode_errors(body, [2]),
    ),
}


def encoded(version: str) -> dict[str, Body]:
    """Return the body of each message in this version."""
    requests = {
        name: messages.encode(request, version=version)[1] for name, request in REQUESTS.items()
    }
    if version == UNVERSIONED:
        bodies = {name: message.body for name, message in MESSAGES.items() if name != LINKS}
    else:
        bodies = {name: message.body for name, message in MESSAGES.items()}
    return {name: with_version(body, version) for name, body in {**requests, **bodies}.items()}


def decoded(name: str, body: Body) -> object:
    if name in REQUESTS:
        return messages.decode(name, body)
    return MESSAGES[name].decode(body)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_between_brokers_have_the_bytes_of_their_version(version: str) -> None:
    """The bytes of version 0.1 were written by the code of release 0.1.0. A change of bytes needs a new version."""
    found = "".join(f"{name} {pack(body).hex()}\n" for name, body in encoded(version).items())
    assert found == (ENCODINGS / f"{version}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_message_of_both_versions_is_decoded(version: str) -> None:
    for name, body in encoded(version).items():
        received = without_version(unpack(pack(body)), "3", 1)
        if name not in REQUESTS:
            assert decoded(name, received) == MESSAGES[name].decode(MESSAGES[name].body)
            continue
        request = messages.decode(name, received)
        if version == UNVERSIONED:  # its brokers have no versions
            request = messages.decode(name, messages.encode(REQUESTS[name])[1])
            assert request == decoded(name, received)
        else:
            assert request == REQUESTS[name]


def test_brokers_in_the_requests_of_version_0_1_have_only_that_version() -> None:
    request = messages.decode(*messages.encode(REQUESTS["update_metadata"], version=UNVERSIONED))
    assert isinstance(request, UpdateMetadataRequest)
    assert [broker.versions for broker in request.live_brokers] == [(UNVERSIONED,)]


NAMES = st.sampled_from([*REQUESTS, *MESSAGES])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)


@given(NAMES, st.sampled_from(VERSIONS), st.dictionaries(st.text(), VALUES, max_size=3))
def test_unknown_fields_are_ignored(name: str, version: str, more: dict[str, Any]) -> None:
    body = without_version(encoded(version).get(name, {}), "3", 1)
    unknown = {
        key: value
        for key, value in more.items()
        if key not in (*body, "suspects", "brokers", "topic_ids")
    }
    assert decoded(name, body | unknown) == decoded(name, body)


@given(NAMES, st.sampled_from(VERSIONS), st.data())
def test_missing_fields_have_defaults(name: str, version: str, data: st.DataObject) -> None:
    body = without_version(encoded(version).get(name, {}), "3", 1)
    needed = MESSAGES[name].needed if name in MESSAGES else frozenset()
    kept = data.draw(st.sets(st.sampled_from(sorted(body)))) if body else set()
    decoded(name, {key: value for key, value in body.items() if key in kept | needed})


def rows_of(body: Any) -> list[list[Any]]:
    """Return the rows in the lists of a body, but not those whose length is a number of items."""
    return [
        row
        for name, rows in body.items()
        if name not in ("errors", "challenge") and isinstance(rows, list)
        for row in rows
        if isinstance(row, list)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_that_a_later_version_appends_to_a_row_are_ignored(version: str) -> None:
    for name, body in encoded(version).items():
        received = unpack(pack(without_version(body, "3", 1)))
        expected = decoded(name, received)
        later = {**received}
        for row in rows_of(later):
            if not (name == "leader_and_isr" and len(row) == 4) and not (
                name == "update_metadata" and len(row) == 4
            ):
                row.append("later")
        assert decoded(name, later) == expected, name


def test_request_without_an_epoch_has_the_epoch_before_all_controllers() -> None:
    for method in REQUESTS:
        assert messages.decode(method, {}).controller_epoch == -1


@pytest.mark.parametrize("version", ["0.0", "0.3", "1.0"])
def test_request_of_another_version_is_refused_with_both_brokers_and_the_remedy(
    version: str,
) -> None:
    with pytest.raises(KafkaError) as caught:
        without_version({"version": version, "anything": 1}, "3", 1)
    older = "broker 3" if version == "0.0" else "broker 1"
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert caught.value.detail == (
        "broker 1 has versions 0.1 and 0.2 of the protocol between brokers, and broker 3 "
        f"version {version}: upgrade {older} first, one minor release at a time and without "
        "minikafka.inter.broker.protocol.version in its file"
    )


@pytest.mark.parametrize("version", [2, None, "", "0.2\n", "latest", ["0.2"]])
def test_malformed_version_is_refused(version: object) -> None:
    with pytest.raises(KafkaError) as caught:
        without_version({"version": version}, "3", 1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_requests_are_sent_in_the_highest_version_that_both_brokers_have() -> None:
    old, new = Broker(2, ()), Broker(2, (), versions=VERSIONS)
    later = Broker(2, (), versions=(VERSION, "0.3"))
    assert version_for(VERSIONS, old) == UNVERSIONED
    assert version_for(VERSIONS, new) == VERSION
    assert version_for(VERSIONS, later) == VERSION
    assert version_for((UNVERSIONED,), new) == UNVERSIONED


def test_no_request_is_sent_to_a_broker_without_a_common_version() -> None:
    broker = Broker(2, (), versions=("0.3", "0.10"))
    with pytest.raises(KafkaError) as caught:
        version_for(VERSIONS, broker)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert caught.value.detail == mismatch("this broker", VERSIONS, "broker 2", broker.versions)
    assert "upgrade this broker first" in caught.value.detail
