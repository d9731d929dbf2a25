"""How Kafka's tools connect: `--bootstrap-server`, and a properties file with TLS and login."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

import click

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client import Client
from minikafka.client.administration.results import Outcome
from minikafka.tools.cli.arguments.command_config import remember_file
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.kafka_home.options import Arguments

T = TypeVar("T")
K = TypeVar("K")

_FILES: Final = ("command-config", "admin.config", "producer.config", "consumer.config")
_ADDRESSES: Final = ("bootstrap-server", "broker-list")
_PROTOCOL: Final = re.compile(r"^[0-9A-Za-z\-%._]*://")
"""Kafka's tools ignore a security protocol in front of an address."""


def connected(
    arguments: Arguments,
    work: Callable[[Client], Coroutine[Any, Any, T]],
    *,
    read_committed: bool = False,
) -> T:
    """Run `work` with a client of the brokers that the options name. Raises MinikafkaError."""
    context = click.get_current_context()
    for name in _FILES:
        if (file := arguments.value(name)) is not None:
            remember_file(context, context.command.params[0], file)
    return run_with_client(work, bootstrap(arguments), read_committed=read_committed)


def bootstrap(arguments: Arguments) -> str:
    """Return the addresses of the brokers, separated by commas. Raises MinikafkaError without them."""
    if not any(map(arguments.has, _ADDRESSES)):
        for text in arguments.values("producer-props"):
            if text.startswith("bootstrap.servers="):
                return text.partition("=")[2]
    given = next((name for name in _ADDRESSES if arguments.has(name)), _ADDRESSES[0])
    addresses = arguments.required(given).split(",")
    return ",".join(_PROTOCOL.sub("", address.strip()) for address in addresses)


def raise_first(outcomes: Iterable[Outcome]) -> None:
    """Raise the KafkaError of the first outcome that is one."""
    for outcome in outcomes:
        if not outcome.ok:
            raise KafkaError(outcome.code, outcome.reason)


def failed(outcomes: Mapping[K, Outcome]) -> dict[K, Outcome]:
    """Return the outcomes that are errors."""
    return {item: outcome for item, outcome in outcomes.items() if not outcome.ok}


_EXCEPTIONS: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
}
"""The names of Kafka's exceptions that are not the name of the code."""


def exception_text(code: ErrorCode, reason: str) -> str:
    """Return an error as the text of Kafka's exception in Java."""
    words = "".join(word.capitalize() for word in code.name.split("_"))
    name = _EXCEPTIONS.get(code, f"{words}Exception")
    return f"org.apache.kafka.common.errors.{name}: {reason}"
