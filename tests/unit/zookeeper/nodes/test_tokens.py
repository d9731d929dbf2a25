"""The nodes of delegation tokens."""

from __future__ import annotations

import json

import pytest

from minikafka.security.tokens import DelegationToken
from minikafka.zookeeper.nodes import tokens

TOKEN = DelegationToken("t-1", "User:CN=a b", "User:bob", ("User:c", "User:ü"), 1, 2, 3)
FIELDS = {
    "version": 3,
    "owner": "User%3ACN%3Da%20b",
    "tokenRequester": "User%3Abob",
    "renewers": ["User%3Ac", "User%3A%C3%BC"],
    "issueTimestamp": 1,
    "maxTimestamp": 3,
    "expiryTimestamp": 2,
    "tokenId": "t-1",
}


def test_token_is_written_with_kafkas_fields_and_read_again():
    assert json.loads(tokens.encode(TOKEN)) == FIELDS
    assert tokens.decode("t-1", tokens.encode(TOKEN)) == TOKEN


@pytest.mark.parametrize("version", [1, 2])
def test_token_of_an_older_broker_was_requested_by_its_owner(version):
    fields = {name: value for name, value in FIELDS.items() if name != "tokenRequester"}

    token = tokens.decode("t-1", json.dumps({**fields, "version": version}).encode())

    assert token.requester == token.owner == "User:CN=a b"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"version": "3"},
        {"owner": None},
        {"owner": "alice"},
        {"owner": "User:alice"},
        {"tokenRequester": 5},
        {"renewers": "User%3Ac"},
        {"renewers": [5]},
        {"issueTimestamp": "1"},
        {"maxTimestamp": None},
        {"expiryTimestamp": 1.5},
        {"expiryTimestamp": True},
        {"tokenId": "t-2"},
    ],
)
def test_malformed_token_is_refused(change):
    with pytest.raises(ValueError, match=r"."):
        tokens.decode("t-1", json.dumps({**FIELDS, **change}).encode())
