"""ApiVersions and UpdateFeatures."""

from __future__ import annotations

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis import versions as api
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import API_VERSIONS, SERVED, UPDATE_FEATURES


def table(entity) -> dict[int, tuple[int, int]]:
    return {key.api_key: (key.min_version, key.max_version) for key in entity.api_keys}


@pytest.mark.parametrize("version", range(4))
def test_api_versions_lists_all_served_apis_in_every_request_version(version: int) -> None:
    named = {"client_software_name": "a", "client_software_version": "1.0"}
    request = entity(API_VERSIONS, version, **named)
    body = api.api_versions(Cold().services, request, context(version))
    answer = decoded(API_VERSIONS, version, body)
    assert answer.error_code == ErrorCode.NONE
    assert table(answer) == SERVED


@pytest.mark.parametrize(
    ("name", "software"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a", "1\n"), ("ä", "1")]
)
def test_client_with_an_invalid_software_name_is_refused(name: str, software: str) -> None:
    named = {"client_software_name": name, "client_software_version": software}
    body = api.api_versions(Cold().services, entity(API_VERSIONS, 3, **named), context(3))
    answer = decoded(API_VERSIONS, 3, body)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.api_keys == ()


def test_unsupported_api_versions_request_is_answered_in_version_0_with_all_apis() -> None:
    frame = api.unsupported(77)
    assert frame[4:8] == b"\0\0\0\x4d"
    answer = codec.decode_response(API_VERSIONS, 0, frame[4:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert table(answer) == SERVED


UNSUPPORTED = "the provided feature is not supported"
NOT_FINALIZED = "Can not delete non-existing finalized feature"


@pytest.mark.parametrize(
    ("version", "update", "words"),
    [
        (0, ("metadata.version", 5, False), UNSUPPORTED),
        (0, ("metadata.version", 0, True), NOT_FINALIZED),
        (0, ("metadata.version", 0, False), "without setting the allowDowngrade flag"),
        (0, ("", 1, False), "name can not be empty"),
        (1, ("metadata.version", 5, 1), UNSUPPORTED),
        (1, ("metadata.version", 5, 3), UNSUPPORTED),
        (1, ("metadata.version", 0, 2), NOT_FINALIZED),
        (1, ("metadata.version", 0, 1), "without setting the allowDowngrade flag"),
        (1, ("metadata.version", 5, 0), "unknown upgrade type"),
    ],
)
def test_update_of_any_feature_gets_kafkas_error(
    version: int, update: tuple[str, int, int], words: str
) -> None:
    kind = "upgrade_type" if version else "allow_downgrade"
    names = ("feature", "max_version_level", kind)
    updates = [dict(zip(names, update, strict=True)), {"feature": "b", "max_version_level": 1}]
    updates[1][kind] = version
    request = entity(UPDATE_FEATURES, version, feature_updates=updates)
    answer = api.update_features(Cold().services, request, context(version))
    got = decoded(UPDATE_FEATURES, version, answer)
    assert got.error_code == ErrorCode.NONE
    assert [result.feature for result in got.results] == [update[0], "b"]
    assert [result.error_code for result in got.results] == [ErrorCode.INVALID_REQUEST] * 2
    assert words in got.results[0].error_message
