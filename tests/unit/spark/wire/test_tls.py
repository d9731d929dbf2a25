"""The options of TLS, checked before any connection."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark import security_options
from minikafka.spark.wire.security import check


@pytest.mark.parametrize("content", ["", "text"])
def test_truststore_without_a_certificate_is_an_error_that_names_the_option(tmp_path, content):
    path = tmp_path / "authorities.pem"
    path.write_text(content)
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM"}
    config, _ = security_options.parse(given | {"kafka.ssl.truststore.location": str(path)})
    expected = f"option kafka.ssl.truststore.location: {path} has no certificate in PEM format"
    with pytest.raises(ConfigError, match=expected):
        check(config)
