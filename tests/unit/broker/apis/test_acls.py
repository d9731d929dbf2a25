"""DescribeAcls."""

from __future__ import annotations

import pytest
from support.cold import Cold, context

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.acls import describe_acls
from minikafka.wire import codec
from minikafka.wire.versions import DESCRIBE_ACLS


@pytest.mark.parametrize("version", range(1, 4))
def test_describe_acls_is_refused_without_an_authorizer(version: int) -> None:
    request = codec.request(DESCRIBE_ACLS, version)
    answer = describe_acls(Cold().services, request, context(version))
    frame = codec.encode_response(1, DESCRIBE_ACLS, version, answer)
    got = codec.decode_response(DESCRIBE_ACLS, version, frame[4:])
    assert got.error_code == ErrorCode.SECURITY_DISABLED
    assert got.resources == ()
