"""Errors about topics, partitions and groups that do not exist or are refused, with the reason or a helpful command."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import minikafka.client as clients
import minikafka.tools.cluster.observation.access as broker_access
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.terminal.command_group import nearest

Subject = TypeVar("Subject", str, TopicPartition)


VALID: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
ASK_MS: Final = 1_000
"""Time for the controller to confirm that a topic does not exist, and for a broker to list similar names."""


class UnknownTopics(KafkaError):
    """Some topics do not exist. The command line adds similar names as the hint."""

    def __init__(self, names: Sequence[str]) -> None:
        text = (
            f"{', '.join(names)}: no such topic; to create it: minikafka topics create {names[0]}"
        )
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        self.names = names


def unknown_topics(names: Sequence[str], hint: str = "") -> KafkaError:
    """Return the error for topics that do not exist. The text contains the command to create the first topic."""
    error = UnknownTopics(names)
    error.hint = hint
    return error


async def require_topics(admin: clients.Admin, names: Iterable[str]) -> None:
    """Raise UnknownTopics at once if a topic does not exist. Invalid names are left to the command's own request.

    If a broker does not know a topic, the controller is asked too, because the broker's metadata may lag.
    """
    wanted = [name for name in dict.fromkeys(names) if VALID.fullmatch(name)]
    known = await _partitions(admin, wanted, set(wanted))
    if missing := [name for name in wanted if name not in known]:
        raise unknown_topics(missing)


async def require_partitions(admin: clients.Admin, partitions: Iterable[TopicPartition]) -> None:
    """Raise UnknownTopics, or KafkaError with the name of a partition, at once if one of these does not exist."""
    wanted = [tp for tp in dict.fromkeys(partitions) if VALID.fullmatch(tp.topic)]
    names = list(dict.fromkeys(tp.topic for tp in wanted))
    known = await _partitions(admin, names, set(wanted))
    if missing := [name for name in names if name not in known]:
        raise unknown_topics(missing)
    for tp in wanted:
        if tp.partition not in known[tp.topic]:
            hint = f"to list its partitions: minikafka topics describe {tp.topic}"
            text = f"{tp}: no such partition; {hint}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


async def _partitions(
    admin: clients.Admin, names: Sequence[str], wanted: Collection[str | TopicPartition]
) -> dict[str, Collection[int]]:
    """Return the partition numbers of existing topics, from one broker, and from the controller if some are missing."""
    if not names:
        return {}
    _, topics = await admin.describe(names)
    known: dict[str, Collection[int]] = {topic.name: topic.partitions for topic in topics}
    if not all(_is_in(one, known) for one in wanted):
        with suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(ASK_MS / 1000):
                found = await admin.describe_topics(names)
                known |= {name: info.partitions for name, info in found.items()}
    return known


def _is_in(one: str | TopicPartition, known: Mapping[str, Collection[int]]) -> bool:
    if isinstance(one, str):
        return one in known
    return one.partition in known.get(one.topic, ())


async def similar_topics(admin: clients.Admin, names: Sequence[str]) -> str:
    """Return a question with the existing topics whose names are similar; "" if there is none."""
    known: list[str] = []
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(ASK_MS / 1000):
            known = [topic.name for topic in (await admin.describe())[1]]
    return did_you_mean(names, known)


def did_you_mean(names: Sequence[str], known: Iterable[str]) -> str:
    """Return a question with the known names that are similar to one of these names; "" if there is none."""
    existing = set(known)
    found = [other for name in names for other in nearest(name, sorted(existing - {name}))]
    return f"did you mean {' or '.join(dict.fromkeys(found))}?" if found else ""


async def with_similar_topics(
    admin: clients.Admin, outcomes: Mapping[Subject, clients.Outcome]
) -> dict[Subject, clients.Outcome]:
    """Return the outcomes by topic or partition; the message of an unknown topic names topics with similar names."""
    found = dict(outcomes)
    for subject, outcome in outcomes.items():
        if outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            name = subject if isinstance(subject, str) else subject.topic
            if question := await similar_topics(admin, [name]):
                text = (outcome.message or "there is no such topic").rstrip(".")
                found[subject] = outcome._replace(message=f"{text}; {question}")
    return found


@contextmanager
def explain_topic_errors(topic: str) -> Iterator[None]:
    """Replace errors that the `with` block raises about `topic` by errors with a reason or a helpful command.

    Such an error means that `topic` does not exist, lacks a partition, or cannot be created.
    """
    try:
        yield
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REPLICATION_FACTOR and error.detail == topic:
            why = "default.replication.factor is larger than the number of running brokers"
            hint = f"to use fewer: minikafka topics create {topic} --replication-factor N"
            raise KafkaError(error.code, f"{topic}: {why}; {hint}") from None
        if error.code is ErrorCode.INVALID_TOPIC_EXCEPTION and error.detail == topic:
            why = "a topic name has 1 to 249 ASCII letters, digits, '.', '_' and '-', and is not '.' or '..'"
            raise KafkaError(error.code, f"{topic}: {why}") from None
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if error.detail == topic:
            raise unknown_topics([topic], error.hint) from error
        if not re.fullmatch(rf"{re.escape(topic)}-[0-9]+", error.detail):
            raise
        hint = f"to list its partitions: minikafka topics describe {topic}"
        raise KafkaError(error.code, f"{error.detail}: no such partition; {hint}") from error


def similar_partition(topics: Iterable[str], tp: TopicPartition) -> str:
    """Return a question with the topics that have similar names, after "; "; "" if there is none."""
    question = did_you_mean([tp.topic], topics)
    return f"; {question}" if question else ""


async def similar_groups(client: clients.Client, name: str) -> str:
    """Return a question with the existing groups whose names are similar, after "; "; "" if there is none."""
    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(ASK_MS / 1000):
            known = [listing.group for listing in await client.groups.list_groups()]
            question = did_you_mean([name], known)
            return f"; {question}" if question else ""
    return ""


async def similar_group_at(access: broker_access.BrokerAccess, name: str) -> str:
    """Return the same as `similar_groups` for the brokers of a cluster."""
    async with clients.Client(access.servers, connector=access.connector) as client:
        return await similar_groups(client, name)
