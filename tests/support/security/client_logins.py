"""The logins of the client matrix, as files that each driver reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.security.certificates import PASSWORD, Authority, Certificate

_COMMON: Final = "org.apache.kafka.common.security"
_PLAIN: Final = f"{_COMMON}.plain.PlainLoginModule"
_SCRAM: Final = f"{_COMMON}.scram.ScramLoginModule"
_BEARER: Final = f"{_COMMON}.oauthbearer.OAuthBearerLoginModule"
_HANDLER: Final = f"{_COMMON}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True)
class Login:
    """How a client connects. `trusted`: the authority of the servers. `own`: the client's certificate.

    `is_token`: user and password are the id and the HMAC of a delegation token. `bearer`: the token of OAUTHBEARER.
    """

    protocol: str
    trusted: Authority
    own: Certificate | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""
    bearer: str = ""
    is_token: bool = False

    def write(self, directory: Path, name: str) -> Path:
        """Write NAME.json for the drivers, and NAME.properties for Kafka's client; return the path without suffix."""
        path = directory / name
        (directory / f"{name}.jwt").write_text(self.bearer)
        (directory / f"{name}.json").write_text(json.dumps(self._fields()))
        lines = [f"{key}={value}\n" for key, value in self._properties(path).items()]
        (directory / f"{name}.properties").write_text("".join(lines))
        return path

    def _fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found["ca"] = str(self.trusted.pem)
        if self.own is not None:
            found |= {"chain": str(self.own.chain_file), "key": str(self.own.key_file)}
        if self.mechanism:
            found["mechanism"] = self.mechanism
        if self.user:
            found |= {"user": self.user, "password": self.password}
        if self.bearer:
            found["token"] = self.bearer
        return found

    def _properties(self, path: Path) -> dict[str, str]:
        found = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trusted.pem),
            }
        if self.own is not None:
            found |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(self.own.pkcs12),
                "ssl.keystore.password": PASSWORD,
                "ssl.key.password": PASSWORD,
            }
        if self.mechanism:
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
        if self.bearer:
            found |= {
                "sasl.login.callback.handler.class": _HANDLER,
                "sasl.oauthbearer.token.endpoint.url": f"file://{path}.jwt",
            }
        return found

    def _jaas(self) -> str:
        if self.bearer:
            return f"{_BEARER} required;"
        module = _PLAIN if self.mechanism == "PLAIN" else _SCRAM
        token = ' tokenauth="true"' if self.is_token else ""
        return f'{module} required username="{self.user}" password="{self.password}"{token};'
