"""ApiVersions."""

from __future__ import annotations

import pytest
from support.cold import Cold, context

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis import versions as api
from minikafka.wire import codec
from minikafka.wire.versions import API_VERSIONS, SERVED


def table(entity) -> dict[int, tuple[int, int]]:
    return {key.api_key: (key.min_version, key.max_version) for key in entity.api_keys}


@pytest.mark.parametrize("version", range(4))
def test_api_versions_lists_all_served_apis_in_every_request_version(version: int) -> None:
    named = {"client_software_name": "a", "client_software_version": "1.0"}
    request = codec.request(API_VERSIONS, version, **named)
    answer = api.api_versions(Cold().services, request, context(version))
    assert answer.error_code == ErrorCode.NONE
    assert table(answer) == SERVED


@pytest.mark.parametrize(
    ("name", "software"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a", "1\n"), ("ä", "1")]
)
def test_client_with_an_invalid_software_name_is_refused(name: str, software: str) -> None:
    named = {"client_software_name": name, "client_software_version": software}
    answer = api.api_versions(Cold().services, codec.request(API_VERSIONS, 3, **named), context(3))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.api_keys == ()


def test_unsupported_api_versions_request_is_answered_in_version_0_with_all_apis() -> None:
    frame = api.unsupported(77)
    assert frame[4:8] == b"\0\0\0\x4d"
    answer = codec.decode_response(API_VERSIONS, 0, frame[4:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert table(answer) == SERVED
