"""The table of served versions."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from minikafka.wire import versions


def test_every_served_api_has_a_name_and_a_version_range() -> None:
    assert versions.SERVED.keys() == versions.NAMES.keys()
    assert all(0 <= low <= high for low, high in versions.SERVED.values())


@pytest.mark.parametrize("message", [ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest])
def test_flexible_versions_are_the_same_as_in_kafka(message: type) -> None:
    low, high = versions.SERVED[message.API_KEY]
    for version in range(low, high + 1):
        flexible = bool(message.flexible_version_q(version))
        assert versions.is_flexible(message.API_KEY, version) == flexible


def test_api_versions_outside_the_version_table_are_not_served() -> None:
    assert versions.is_served(versions.FETCH, 4)
    assert not versions.is_served(versions.FETCH, 3)
    assert not versions.is_served(versions.FETCH, 13)
    assert not versions.is_served(versions.FETCH, -1)
    assert not versions.is_served(4, 0)


def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    assert not versions.has_flexible_response_header(versions.API_VERSIONS, 3)
    assert versions.has_flexible_response_header(versions.METADATA, 9)
    assert not versions.has_flexible_response_header(versions.METADATA, 8)
