"""ZooKeeper's encoding of values: null, lengths that cannot be, and strings that Java reads in its own way."""

from __future__ import annotations

import struct

import pytest

from minikafka.zookeeper.messages import jute
from minikafka.zookeeper.messages.jute import ANYONE, JuteReader, Malformed
from minikafka.zookeeper.server.core.acl import READABLE


@pytest.mark.parametrize("text", [None, "", "/a", "ä", "\uffff", "😀"])
def test_encoded_string_is_read_back(text: str | None) -> None:
    encoded = jute.string(text)
    if text != "😀":
        assert JuteReader(encoded).string() == text
    else:
        # Java writes two halves, and reads them as characters that no path can have.
        assert encoded == struct.pack("!i", 6) + b"\xed\xa0\xbd\xed\xb8\x80"
        assert set(JuteReader(encoded).string() or "") == {"\ufffd"}


def test_string_that_is_not_utf_8_has_replacement_characters() -> None:
    assert JuteReader(jute.buffer(b"/a\xff")).string() == "/a\ufffd"


def test_null_and_empty_buffers_are_different() -> None:
    assert JuteReader(jute.buffer(None)).buffer() is None
    assert JuteReader(jute.buffer(b"")).buffer() == b""


@pytest.mark.parametrize("size", [-2, -(2**31), 5, 2**31 - 1])
def test_buffer_with_an_impossible_length_is_malformed(size: int) -> None:
    with pytest.raises(Malformed):
        JuteReader(struct.pack("!i", size) + b"four").buffer()


@pytest.mark.parametrize("count", [9, 2**31 - 1])
def test_list_that_is_longer_than_its_bytes_is_malformed(count: int) -> None:
    data = struct.pack("!i", count) + b"four"
    with pytest.raises(Malformed):
        JuteReader(data).items(JuteReader(data).int32)
    with pytest.raises(Malformed):
        JuteReader(data).acl()


def test_list_that_lets_everyone_in_is_read_as_the_one_object() -> None:
    assert JuteReader(jute.acl(ANYONE)).acl() is ANYONE
    assert JuteReader(jute.acl(READABLE)).acl() == READABLE
    assert JuteReader(jute.NULL).acl() is None


def test_number_or_byte_that_is_missing_is_malformed() -> None:
    for read in (JuteReader(b"\0" * 3).int32, JuteReader(b"\0" * 7).int64, JuteReader(b"").boolean):
        with pytest.raises(Malformed):
            read()
