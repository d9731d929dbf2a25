"""Frames of a receive buffer: which are handled, in which order, and which are refused."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.kafka.wire.framing import OTHER_SIZE_MAX, frames

SIZE_MAX = 1000


def frame(api: int, correlation: int, body: bytes = b"", client: bytes | None = b"me") -> bytes:
    name = pack(">h", -1) if client is None else pack(">h", len(client)) + client
    inside = pack(">hhi", api, 5, correlation) + name + body
    return pack(">i", len(inside)) + inside


def found(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Return (correlation id, body) of the handled frames, and the position after the last handled frame."""
    buf = bytearray(data)
    seen: list[tuple[int, bytes]] = []

    def route(
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> None:
        assert (version, buf[start : start + 4]) == (5, pack(">i", end - start - 4))
        seen.append((correlation, bytes(view[body:end])))

    def other(
        view: memoryview,
        api: int,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> None:
        assert (api, version, view[start : start + 4]) == (3, 5, pack(">i", end - start - 4))
        seen.append((correlation, bytes(view[body:end])))

    rest = frames(buf, memoryview(buf), 0, len(buf), {0: route}, other, SIZE_MAX)
    return seen, rest


@pytest.mark.parametrize("client", [b"me", b"", None])
def test_whole_frames_are_handled_in_order_and_a_partial_one_is_kept(client: bytes | None) -> None:
    whole = frame(0, 1, b"abc", client) + frame(3, 2, b"", client) + frame(0, 3, b"d", client)
    for cut in range(len(frame(0, 4, b"efg", client))):
        seen, rest = found(whole + frame(0, 4, b"efg", client)[:cut])
        assert seen == [(1, b"abc"), (2, b""), (3, b"d")]
        assert rest == len(whole)


def test_frame_handling_stops_after_a_frame_whose_handler_returns_true() -> None:
    data = bytearray(frame(0, 1) + frame(3, 2) + frame(0, 3) + frame(0, 4))
    seen: list[int] = []

    def route(*arguments: Any) -> bool:
        seen.append(arguments[3])
        return arguments[3] in {2, 3}

    routes = {0: route, 3: route}
    start = frames(data, memoryview(data), 0, len(data), routes, route, SIZE_MAX)
    assert (seen, start) == ([1, 2], len(frame(0, 1) + frame(3, 2)))
    start = frames(data, memoryview(data), start, len(data), routes, route, SIZE_MAX)
    assert (seen, start) == ([1, 2, 3], len(data) - len(frame(0, 4)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pack(">i", 9) + bytes(9 + 1), id="shorter than its header"),
        pytest.param(pack(">i", -1) + bytes(20), id="a length below 0"),
        pytest.param(pack(">i", SIZE_MAX + 1), id="too long, by its prefix alone"),
        pytest.param(pack(">i", SIZE_MAX + 1) + bytes(20), id="too long, with its header"),
        pytest.param(pack(">ihhih", 10, 0, 5, 1, -2), id="a client id of length -2"),
        pytest.param(pack(">ihhih", 11, 0, 5, 1, 2) + b"x", id="a client id beyond the frame"),
    ],
)
def test_malformed_frame_raises_a_protocol_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        found(data)
    with pytest.raises(ProtocolViolation):
        found(frame(0, 1) + data)


@pytest.mark.parametrize("arrived", [20, OTHER_SIZE_MAX + 5])
def test_request_of_an_api_without_a_route_is_refused_when_it_is_too_large(arrived: int) -> None:
    def handle(*arguments: Any) -> bool:
        return True

    def read(api: int, size: int) -> int:
        data = bytearray(pack(">ihhih", size, api, 5, 1, -1).ljust(arrived, b"x"))
        return frames(data, memoryview(data), 0, len(data), {0: handle}, handle, 1 << 30)

    whole = OTHER_SIZE_MAX + 5
    assert read(0, OTHER_SIZE_MAX + 1) == (whole if arrived == whole else 0)
    assert read(3, OTHER_SIZE_MAX) == (whole - 1 if arrived == whole else 0)
    with pytest.raises(ProtocolViolation, match="at most 8388608 bytes, got 8388609"):
        read(3, OTHER_SIZE_MAX + 1)
