"""How the Python libraries of the client matrix connect, and what they say when they are refused.

MATRIX_LOGIN names the files of a login (`tests/support/security/client_logins.py`). Without it, clients connect to
PLAINTEXT listeners.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import time
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 20.0
"""Maximum time in seconds for one attempt to connect."""
TEXT_LENGTH: Final = 2_000


def _login() -> dict[str, Any]:
    name = os.environ.get("MATRIX_LOGIN")
    found: dict[str, Any] = json.loads(Path(f"{name}.json").read_text()) if name else {}
    return found


def confluent() -> dict[str, Any]:
    """Return the properties of librdkafka for the login."""
    login = _login()
    names = {
        "security.protocol": "protocol",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "chain",
        "ssl.key.location": "key",
        "sasl.mechanism": "mechanism",
        "sasl.username": "user",
        "sasl.password": "password",
    }
    found = {name: login[field] for name, field in names.items() if field in login}
    if token := login.get("token"):
        found["oauth_cb"] = lambda _: (token, time.time() + 600)
    return found


def _pure_python(login: dict[str, Any]) -> dict[str, Any]:
    found = {"security_protocol": login["protocol"]}
    if "ca" in login:
        context = ssl.create_default_context(cafile=login["ca"])
        if "chain" in login:
            context.load_cert_chain(login["chain"], login["key"])
        found["ssl_context"] = context
    if "mechanism" in login:
        found["sasl_mechanism"] = login["mechanism"]
    if "user" in login:
        found["sasl_plain_username"] = login["user"]
        found["sasl_plain_password"] = login["password"]
    return found


def aiokafka() -> dict[str, Any]:
    """Return the keyword arguments of aiokafka's clients for the login."""
    from aiokafka.abc import AbstractTokenProvider

    login = _login()
    if not login:
        return {}
    found = _pure_python(login)
    if "token" in login:

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return str(login["token"])

        found["sasl_oauth_token_provider"] = Provider()
    return found


def kafka_python() -> dict[str, Any]:
    """Return the keyword arguments of kafka-python's clients for the login."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    login = _login()
    if not login:
        return {}
    found = _pure_python(login)
    if "token" in login:

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return str(login["token"])

        found["sasl_oauth_token_provider"] = Provider()
    return found


def attempt(library: str, bootstrap: str, topic: str) -> dict[str, Any]:
    """Send one record; return `acked`, or the class, code and text of the error, with what the library has logged."""
    logged: dict[str, None] = {}
    handler = logging.Handler()
    handler.emit = lambda record: logged.update({record.getMessage(): None})  # type: ignore[method-assign]
    for name in ("kafka", "aiokafka"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        logger.addHandler(handler)
    try:
        return ATTEMPTS[library](bootstrap, topic)
    except Exception as error:  # noqa: BLE001  each error is the result
        cause = error.__cause__ or error
        code = getattr(cause, "errno", None)
        text = " | ".join([str(cause), *logged])[:TEXT_LENGTH]
        return {"error": type(cause).__name__, "code": code, "text": text}


def _confluent(bootstrap: str, topic: str) -> dict[str, Any]:
    from confluent_kafka import KafkaError, Producer

    errors: list[KafkaError] = []
    results: list[KafkaError | None] = []
    settings = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": errors.append}
    producer = Producer({**settings, **confluent()})
    producer.produce(topic, b"0", on_delivery=lambda error, _: results.append(error))
    deadline = time.monotonic() + SECONDS
    while not results and time.monotonic() < deadline:
        producer.poll(0.05)
        refused = [e for e in errors if "SSL" in e.str() or "uthentication" in e.str()]
        results += refused[:1]
    error = results[0] if results else errors[-1]
    if error is None:
        return {"acked": 0}
    return {"error": error.name(), "code": error.code(), "text": error.str()}


def _aiokafka(bootstrap: str, topic: str) -> dict[str, Any]:
    from aiokafka import AIOKafkaProducer

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **aiokafka())
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"0")
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(send(), SECONDS))
    return {"acked": 0}


def _kafka_python(bootstrap: str, topic: str) -> dict[str, Any]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","), bootstrap_timeout_ms=2_000, **kafka_python()
    )
    try:
        producer.send(topic, b"0").get(SECONDS)
    finally:
        producer.close(0)
    return {"acked": 0}


ATTEMPTS: Final = {
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
    "kafka-python": _kafka_python,
}
