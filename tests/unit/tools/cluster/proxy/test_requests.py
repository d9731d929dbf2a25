"""Requests are found in a stream however it is cut into pieces."""

from __future__ import annotations

import struct

from minikafka.tools.cluster.proxy.requests import RequestMark, RequestScanner

PRODUCE, FETCH = 0, 1


def request(api: int, rest: int) -> bytes:
    return struct.pack(">ih", 2 + rest, api) + bytes(rest)


def test_requests_in_one_piece_have_a_beginning_and_an_end():
    marks = RequestScanner().feed(request(FETCH, 10) + request(PRODUCE, 0))

    assert marks == [
        RequestMark(0, FETCH),
        RequestMark(16, FETCH, is_end=True),
        RequestMark(16, PRODUCE),
        RequestMark(22, PRODUCE, is_end=True),
    ]


def test_same_requests_are_found_in_pieces_of_every_size():
    stream = request(FETCH, 10) + request(PRODUCE, 3) + request(18, 0)
    for size in range(1, len(stream) + 1):
        scanner, found = RequestScanner(), []
        for at in range(0, len(stream), size):
            marks = scanner.feed(stream[at : at + size])
            found += [(mark.api, mark.is_end, at + mark.at) for mark in marks]
        assert [(api, is_end) for api, is_end, _ in found] == [
            (FETCH, False),
            (FETCH, True),
            (PRODUCE, False),
            (PRODUCE, True),
            (18, False),
            (18, True),
        ]
        assert [at for _, is_end, at in found if is_end] == [16, 25, 31]


def test_request_whose_api_comes_in_a_later_piece_begins_with_that_piece():
    scanner = RequestScanner()

    assert scanner.feed(request(FETCH, 4)[:5]) == []
    assert scanner.feed(request(FETCH, 4)[5:]) == [
        RequestMark(0, FETCH),
        RequestMark(5, FETCH, is_end=True),
    ]
