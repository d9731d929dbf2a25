"""Sentences for what a store refuses: the library's errors after the documented responses of S3."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from support.spark.request_server import RequestServer, body_of, respond

from minikafka.spark.storage.object_store import ObjectStore
from minikafka.spark.storage.store import StorageError, StorageRefused

REFUSED = {
    "InvalidAccessKeyId": (403, "does not know the access key: correct access_key_id"),
    "SignatureDoesNotMatch": (403, "correct secret_access_key in the option storage"),
    "ExpiredToken": (400, "the credentials have expired: renew session_token"),
    "AuthorizationHeaderMalformed": (400, "another region: set region to the region of the bucket"),
    "PermanentRedirect": (301, "another region: set region to the region of the bucket"),
    "NoSuchBucket": (404, "no such bucket: create it, or correct the URI"),
    "AccessDenied": (403, "no right to write here: allow listing the bucket, and reading, writing"),
    "AuthenticationFailed": (403, "correct account_key or sas_token in the option storage"),
    "EntityTooLarge": (400, "cannot be written: EntityTooLarge .*: check the URI and the option"),
}
"""For each error code of S3: the status, and a part of the sentence."""


@pytest.fixture
def refusing() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a server that refuses each request, and a list with the error code that it answers."""
    code: list[str] = []

    def refuse(request: BaseHTTPRequestHandler) -> None:
        body_of(request)
        data = f"<Error><Code>{code[0]}</Code><Message>Because.</Message></Error>".encode()
        respond(request, REFUSED[code[0]][0], data)

    server = RequestServer(refuse)
    yield server.endpoint, code
    server.close()


def store(endpoint: str) -> ObjectStore:
    options = {
        "endpoint": endpoint,
        "access_key_id": "key",
        "secret_access_key": "hidden-secret",
        "region": "us-east-1",
    }
    return ObjectStore("s3://lake/table", options)


def test_refusal_is_one_sentence_with_place_and_remedy_but_no_secret(refusing):
    endpoint, code = refusing
    for name, (_, text) in REFUSED.items():
        code[:] = [name]
        with pytest.raises(StorageError, match=text) as caught:
            store(endpoint).write("_lock", b"")
        assert str(caught.value).startswith("s3://lake/table/_lock"), name
        assert "\n" not in str(caught.value)
        assert "hidden-secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["AccessDenied", "ExpiredToken"])
def test_refusal_of_a_conditional_write_is_told_without_a_second_attempt(refusing, name):
    endpoint, code = refusing
    code[:] = [name]
    with pytest.raises(StorageRefused):
        store(endpoint).create("_lock", b"")


def test_refusal_of_an_upload_is_told_once(refusing):
    endpoint, code = refusing
    code[:] = ["AccessDenied"]
    with pytest.raises(StorageError) as caught, store(endpoint).open_output("rows") as file:
        file.write(b"rows")
    assert str(caught.value).count("s3://lake/table/rows") == 1
    assert str(caught.value).endswith("removing the objects below this URI")
