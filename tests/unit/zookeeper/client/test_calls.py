"""Requests and responses in ZooKeeper's protocol."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minikafka.base.errors import (
    BadVersion,
    MultiFailed,
    NoNode,
    OutcomeUnknown,
    ServerError,
    StaleSession,
)
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Stat
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.messages import codes

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = struct.pack("!qqqqiiiqiiq", *STAT)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!i", len(data)) + data


def header(opcode: int, *, last: bool = False, error: int = -1) -> bytes:
    return struct.pack("!i?i", opcode, last, error)


END = header(-1, last=True)


def failed(code: int) -> bytes:
    return header(-1, error=code) + struct.pack("!i", code)


def test_read_request_is_encoded_as_opcode_path_and_watch_flag() -> None:
    assert calls.get_data("/a", watch=True).body == struct.pack("!i", 4) + text("/a") + b"\x01"
    assert calls.exists("/a", watch=False).body == struct.pack("!i", 3) + text("/a") + b"\x00"
    assert calls.get_children("/a", watch=True).body == struct.pack("!i", 12) + text("/a") + b"\x01"


def test_create_request_asks_for_the_stat_and_sets_an_acl_open_to_anyone() -> None:
    acl = struct.pack("!ii", 1, 31) + text("world") + text("anyone")
    for ephemeral, sequential, flags in ((False, False, 0), (True, False, 1), (True, True, 3)):
        body = calls.create(Create("/a", b"x", ephemeral, sequential)).body
        assert body == struct.pack("!i", 15) + text("/a") + text(b"x") + acl + struct.pack(
            "!i", flags
        )


def test_set_and_delete_requests_contain_the_expected_znode_version() -> None:
    assert calls.set_data(Set("/a", b"x", 7)).body == (
        struct.pack("!i", 5) + text("/a") + text(b"x") + struct.pack("!i", 7)
    )
    assert calls.delete(Delete("/a", -1)).body == (
        struct.pack("!i", 2) + text("/a") + struct.pack("!i", -1)
    )


def test_multi_has_a_header_before_each_operation() -> None:
    body = calls.multi([Check("/a", 3), Delete("/b", 4)]).body
    assert body == (
        struct.pack("!i", 14)
        + header(13)
        + text("/a")
        + struct.pack("!i", 3)
        + header(2)
        + text("/b")
        + struct.pack("!i", 4)
        + END
    )


def test_requests_missing_in_aiozk_are_encoded() -> None:
    assert calls.get_data_of_many(["/a"]).body == (
        struct.pack("!i", 22) + header(4) + text("/a") + b"\x00" + END
    )
    assert calls.get_children_of_many(["/a"]).body == (
        struct.pack("!i", 22) + header(8) + text("/a") + b"\x00" + END
    )
    assert calls.remove_watch("/a", codes.CHILD_WATCH).body == (
        struct.pack("!i", 18) + text("/a") + struct.pack("!i", 1)
    )
    assert calls.close().body == struct.pack("!i", -11)
    assert struct.pack("!ii", -2, 11) == calls.PING


def test_connect_request_has_the_session_and_the_last_zxid() -> None:
    frame = calls.connect(7, b"p" * 16, 6000, 99)
    assert frame == struct.pack("!iqiq", 0, 99, 6000, 7) + text(b"p" * 16) + b"\x00"
    assert text(bytes(16)) in calls.connect(0, b"", 6000, 0)


def test_connect_response_is_decoded() -> None:
    payload = struct.pack("!iiq", 0, 4000, 7) + text(b"p" * 16) + b"\x00"
    assert calls.decode_connect(payload) == calls.Attached(7, b"p" * 16, 4000)
    over = struct.pack("!iiq", 0, 0, 0) + text(bytes(16))
    assert calls.decode_connect(over).session_id == 0


def test_responses_and_events_are_decoded_to_python_values() -> None:
    assert calls.get_data("/a", watch=False).decode(text(b"x") + STAT_BYTES) == (b"x", STAT)
    null = struct.pack("!i", -1) + STAT_BYTES
    assert calls.get_data("/a", watch=False).decode(null) == (b"", STAT)
    assert calls.exists("/a", watch=False).decode(STAT_BYTES) == STAT
    assert calls.set_data(Set("/a", b"", 0)).decode(STAT_BYTES) == STAT
    assert calls.create(Create("/a", b"")).decode(text("/a") + STAT_BYTES) == ("/a", STAT)
    names = struct.pack("!i", 2) + text("b") + text("a")
    assert calls.get_children("/", watch=False).decode(names + STAT_BYTES) == (["a", "b"], STAT)
    assert calls.decode_event(struct.pack("!ii", 3, 3) + text("/a")) == (codes.DATA_CHANGED, "/a")


def test_successful_multi_returns_its_stats_in_order() -> None:
    ops: list[MultiOp] = [Check("/a", 0), Create("/b", b""), Set("/c", b"", 0), Delete("/d", 0)]
    payload = header(13) + header(15) + text("/b") + STAT_BYTES + header(5) + STAT_BYTES + header(2)
    assert calls.multi(ops).decode(payload + END) == [None, STAT, STAT, None]


@pytest.mark.parametrize("culprit", range(3))
def test_refused_multi_names_the_refused_operation(culprit: int) -> None:
    ops = [Check(f"/{index}", 0) for index in range(3)]
    results = [0] * culprit + [-103] + [-2] * (2 - culprit)
    with pytest.raises(MultiFailed) as caught:
        calls.multi(ops).decode(b"".join(map(failed, results)) + END)
    assert caught.value.index == culprit
    assert type(caught.value.error) is BadVersion
    assert str(caught.value.error) == f"/{culprit}"


def test_multi_with_an_ambiguous_error_code_raises_outcome_unknown() -> None:
    with pytest.raises(OutcomeUnknown):
        calls.multi([Check("/a", 0)]).decode(failed(-7) + END)


def test_refused_multi_that_names_no_operation_raises_multi_failed() -> None:
    with pytest.raises(MultiFailed):
        calls.multi([Check("/a", 0)]).decode(failed(-2) + END)


def test_multi_read_returns_none_for_missing_nodes_and_raises_other_errors() -> None:
    call = calls.get_data_of_many(["/a", "/b"])
    found = header(4) + text(b"x") + STAT_BYTES
    assert call.decode(failed(-101) + found + END) == [None, (b"x", STAT)]
    with pytest.raises(ServerError):
        call.decode(found + failed(-5) + END)
    names = header(8) + struct.pack("!i", 2) + text("b") + text("a")
    assert calls.get_children_of_many(["/a"]).decode(names + END) == [["a", "b"]]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-101, NoNode),
        (-103, BadVersion),
        (-112, StaleSession),
        (-1, OutcomeUnknown),
        (-4, OutcomeUnknown),
        (-7, OutcomeUnknown),
        (-122, OutcomeUnknown),
        (-127, OutcomeUnknown),
        (-118, ServerError),
        (-125, ServerError),
        (-99_999, ServerError),
    ],
)
def test_error_code_says_whether_the_request_may_have_been_applied(
    code: int, kind: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    assert type(calls.error_of(code, "/a")) is kind
    assert capsys.readouterr().out == ""


CALLS: list[calls.ZooKeeperCall[Any]] = [
    calls.get_data("/a", watch=False),
    calls.exists("/a", watch=False),
    calls.get_children("/a", watch=False),
    calls.create(Create("/a", b"")),
    calls.set_data(Set("/a", b"", 0)),
    calls.multi([Check("/a", 0)]),
    calls.get_data_of_many(["/a"]),
]
GARBAGE = [b"\x00", b"\xfe" * 30, struct.pack("!i", 1 << 30) + b"x", text(b"\xff\xfe") + b"x"]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
@pytest.mark.parametrize("payload", GARBAGE, ids=range(len(GARBAGE)))
def test_malformed_response_raises_valueerror(
    call: calls.ZooKeeperCall[Any], payload: bytes
) -> None:
    with pytest.raises(ValueError, match="not a response"):
        call.decode(payload)


def test_multi_response_with_too_few_results_raises_valueerror() -> None:
    for call in (CALLS[5], CALLS[6]):
        with pytest.raises(ValueError, match="not a response"):
            call.decode(END)


@pytest.mark.parametrize(
    "payload",
    [
        header(4) + struct.pack("!i", 9) + b"x" + STAT_BYTES + END,
        header(4) + struct.pack("!i", 10_000) + END,
        header(4) + struct.pack("!i", -2) + STAT_BYTES + END,
        header(4) + text(b"x") + STAT_BYTES[:-1],
        header(5) + STAT_BYTES + END,
        header(4) + text(b"x") + STAT_BYTES + header(4) + text(b"x") + STAT_BYTES + END,
        END,
        b"",
    ],
)
def test_malformed_multi_read_response_raises_valueerror(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not a response of ZooKeeper"):
        calls.get_data_of_many(["/a"]).decode(payload)


def test_null_data_in_a_multi_read_is_decoded_as_empty_bytes() -> None:
    null = header(4) + struct.pack("!i", -1) + STAT_BYTES
    assert calls.get_data_of_many(["/a"]).decode(null + END) == [(b"", STAT)]
