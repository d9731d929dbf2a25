"""Bodies of controller RPCs: the values of `base.model` converted to and from msgpack values, and checked.

Invariant: a value returned by a `decode…` function has the types and ranges of `base.model`, topic names that
are safe as directory names, and lists within their limits. All other bodies raise
KafkaError(INVALID_REQUEST). A body is a map: every key has a default, and unknown keys are ignored, so that brokers of
two versions understand each other. Each partition or broker is a row (a list to which a later version may append),
because one LeaderAndIsr request contains thousands of partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.endpoints import Endpoint, SecurityProtocol
from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    Broker,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    RequestedTopic,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.names import TOPIC_NAME
from minikafka.base.protocol_versions import UNVERSIONED, Versions, parse_versions
from minikafka.broker.rpc.fields import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    Body,
    as_boolean,
    as_broker_id,
    as_error,
    as_integer,
    as_map,
    as_row,
    as_rows,
    as_text,
    as_topic_partition,
    invalid,
)

LEADER_AND_ISR: Final = "leader_and_isr"
UPDATE_METADATA: Final = "update_metadata"
STOP_REPLICA: Final = "stop_replica"
CONTROLLED_SHUTDOWN: Final = "controlled_shutdown"
CREATE_TOPICS: Final = "create_topics"
STATE: Final = "state"
"""Read-only call. Request: an empty map. Response: the state of the broker (for `minikafka status`).

With `since`, the `position` of an earlier response ("" at first), `replicas` has only those that have changed since,
and `gone` the [topic, partition] of those that were removed; `is_whole` says that it has all of them. `metrics` has
no gauges then.
"""
EXPLAIN: Final = "explain"
"""Read-only call. Request: `topic` and `partition`. Response: the broker's data about the partition (for
`minikafka why`).
"""
EXPLAIN_GROUP: Final = "explain_group"
"""Read-only call. Request: `group`. Response: the broker's data about the consumer group (for
`minikafka why --group`).
"""
PLAN: Final = "plan"
"""Read-only call to the active controller. Request: a planned change. Response: the consequences of the change
as lines of text (for `minikafka plan`).
"""
RECONFIGURE: Final = "reconfigure"
"""Call of a tool. Request: the settings in the broker's file. Response: every setting that differs from the
running broker. The broker applies the settings that can be altered at run time.
"""
CHALLENGE: Final = "challenge"
"""Request without a signature, by GET. Response: a value that the next calls must contain (`broker/rpc/signatures.py`),
and the broker's wall time.
"""
LOG_ENDS: Final = "log_ends"
"""A coordinator's question to a leader, from which it computes the lag of consumer groups."""
STATE_CHANGES: Final = frozenset({LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA})
"""Requests of the controller to brokers, delivered to each broker's handler in order."""
HOLD_STEP: Final = "hold_step"
RELEASE_STEP: Final = "release_step"
STEPS: Final = "steps"
"""Call of a tool. Request: a step and a maximum wait for an operation to block there. Response: the held steps,
and the steps at which an operation is blocked.
"""
GATE_CALLS: Final = frozenset({HOLD_STEP, RELEASE_STEP, STEPS})
"""Calls with which a tool blocks, releases and watches a broker's named steps (`broker/step_gate.py`)."""

REPLICAS_MAX: Final = 1024
_LISTENER_NAME: Final = re.compile(r"[A-Z0-9._-]{1,255}")
_HOST: Final = re.compile(r"[a-zA-Z0-9._:%-]{1,255}")
_REQUEST: Final[Body] = {
    "controller_id": -1,
    "controller_epoch": NO_EPOCH,
    "broker_epoch": NO_EPOCH,
    "partitions": [],
    "cause": "",
    "brokers": [],
    "topic_ids": [],
    "suspects": [],
}
"""The keys of the controller's requests. A request without a controller epoch is stale for every broker."""
_REGISTRATION: Final[Body] = {"broker_id": -1, "broker_epoch": NO_EPOCH}
_CAUSE: Final = re.compile(r"[a-zA-Z0-9-]{0,64}")
_SETTING: Final = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_VALUE: Final = re.compile(r"(?s).{0,10000}")
_CHALLENGE: Final = re.compile(r"[0-9a-f-]{1,100}")
_STEP: Final = re.compile(r"[a-zA-Z0-9._-]{1,64}")
_STEP_WAIT_MAX_MS: Final = 60_000


class SettingChange(NamedTuple):
    """A setting with different values in the broker's file and in the running broker.

    `old`, `new`: the values in Kafka's text form, None if unset. `effect` says when the new value applies:
    `now`, `restart` (after the next start) or `overridden` (a setting altered at run time, `old`, takes precedence).
    """

    name: str
    old: str | None
    new: str | None
    effect: str


class CachedRows(list[list[Any]]):
    """Rows that several request bodies share; `packed` caches the msgpack encoding of the rows."""

    __slots__ = ("packed",)

    def __init__(self, rows: Iterable[list[Any]]) -> None:
        super().__init__(rows)
        self.packed = b""


class SharedRows:
    """A cache of the last request's partitions as rows (one list per partition).

    The same partitions are often sent to every broker in turn, so the cache saves most conversions.
    """

    def __init__(self) -> None:
        self._partitions: tuple[PartitionState, ...] = ()
        self._rows = CachedRows(())

    def of(self, partitions: tuple[PartitionState, ...]) -> CachedRows:
        """Return the partitions as rows: one list of fields per partition.

        The caller must not change the rows, because the next call returns the same rows for the same partitions.
        """
        if partitions is not self._partitions:
            # The fields of a PartitionState have the order of a row.
            self._rows = CachedRows([*state.tp, *state[1:]] for state in partitions)
            self._partitions = partitions
        return self._rows


def encode(
    request: ControllerRequest, shared: SharedRows | None = None, version: str = UNVERSIONED
) -> tuple[str, Body]:
    """Return the method name and the body of a controller request in this version of the protocol."""
    body: Body = {
        "controller_id": request.controller_id,
        "controller_epoch": request.controller_epoch,
        "broker_epoch": request.broker_epoch,
        "cause": request.cause,
    }
    if isinstance(request, StopReplicaRequest):
        body["partitions"] = [[*p.tp, p.leader_epoch, p.delete] for p in request.partitions]
        return STOP_REPLICA, body
    body["partitions"] = (shared or SharedRows()).of(request.partitions)
    body["topic_ids"] = [list(pair) for pair in request.topic_ids]
    if isinstance(request, LeaderAndIsrRequest):
        body["brokers"] = [_broker_row(broker, version) for broker in request.live_leaders]
        return LEADER_AND_ISR, body
    body["brokers"] = [_broker_row(broker, version) for broker in request.live_brokers]
    body["suspects"] = list(request.suspects)
    return UPDATE_METADATA, body


def decode(method: str, body: object) -> ControllerRequest:
    """Decode the body of a controller request. Raises KafkaError(INVALID_REQUEST)."""
    if method not in STATE_CHANGES:
        raise invalid(f"{method[:40]!r} is not a controller request")
    fields = as_map(body, _REQUEST)
    if method == STOP_REPLICA:
        return StopReplicaRequest(
            *_epochs(fields), as_rows(fields["partitions"], _stop_replica), _cause(fields)
        )
    common = (
        *_epochs(fields),
        as_rows(fields["partitions"], _Decoder().state),
        as_rows(fields["brokers"], _broker),
        as_rows(fields["topic_ids"], _topic_id),
        _cause(fields),
    )
    if method == LEADER_AND_ISR:
        return LeaderAndIsrRequest(*common)
    return UpdateMetadataRequest(*common, as_rows(fields["suspects"], as_broker_id))


def encode_response(response: ControllerResponse) -> Body:
    """Return the body of a broker's response to a controller request."""
    return {
        "error": int(response.error),
        "partitions": [[*tp, int(error)] for tp, error in response.partitions],
    }


def decode_response(body: object) -> ControllerResponse:
    """Decode a broker's response to a controller request. Raises KafkaError(INVALID_REQUEST)."""
    fields = as_map(body, {"error": int(ErrorCode.UNKNOWN_SERVER_ERROR), "partitions": []})
    partitions = as_rows(fields["partitions"], _Decoder().result)
    return ControllerResponse(as_error(fields["error"]), partitions)


def encode_registration(broker_id: int, broker_epoch: int) -> Body:
    """Return a body that names one registration of a broker."""
    return {"broker_id": broker_id, "broker_epoch": broker_epoch}


def decode_registration(body: object) -> tuple[int, int]:
    """Return the (broker id, broker epoch) in the body. Raises KafkaError(INVALID_REQUEST)."""
    return _registration(as_map(body, _REGISTRATION))


def encode_report(broker_id: int, broker_epoch: int, reporter: int) -> Body:
    """Return the report of a broker, `reporter`, that its connection to a registration of another broker has ended."""
    return {**encode_registration(broker_id, broker_epoch), "reporter": reporter}


def decode_report(body: object) -> tuple[int, int, int]:
    """Return the (broker id, broker epoch, reporter) in the body. Raises KafkaError(INVALID_REQUEST)."""
    fields = as_map(body, {**_REGISTRATION, "reporter": -1})
    return *_registration(fields), as_integer(fields["reporter"], -1, INT32_MAX)


def encode_remaining(remaining: Iterable[TopicPartition]) -> Body:
    """Return the response to a controlled shutdown: the partitions that the broker still leads."""
    return {"remaining": [list(tp) for tp in remaining]}


def decode_remaining(body: object) -> list[TopicPartition]:
    """Return the partitions that the broker still leads. Raises KafkaError(INVALID_REQUEST)."""
    return list(as_rows(_rows_of(body, "remaining"), as_topic_partition))


def encode_ends_asked(partitions: Iterable[TopicPartition]) -> Body:
    """Return the body of the call `log_ends`: the partitions whose high watermarks the caller needs."""
    return {"partitions": [list(tp) for tp in partitions]}


def decode_ends_asked(body: object) -> list[TopicPartition]:
    """Return the partitions in the body of the call `log_ends`. Raises KafkaError(INVALID_REQUEST)."""
    return list(as_rows(_rows_of(body, "partitions"), as_topic_partition))


def encode_ends(ends: Mapping[TopicPartition, int]) -> Body:
    """Return the response to `log_ends`: the high watermarks that the broker knows as the leader."""
    return {"ends": [[*tp, end] for tp, end in ends.items()]}


def decode_ends(body: object) -> dict[TopicPartition, int]:
    """Return the high watermarks in the response to `log_ends`. Raises KafkaError(INVALID_REQUEST)."""
    return dict(as_rows(_rows_of(body, "ends"), _end))


def encode_create_topics(topics: Iterable[RequestedTopic]) -> Body:
    """Return the body with which a broker asks the controller to create topics on behalf of a client (auto-create)."""
    return {
        "topics": [
            [t.name, t.partitions, t.replication_factor, [*map(list, t.configs.items())]]
            for t in topics
        ]
    }


def decode_create_topics(body: object) -> list[RequestedTopic]:
    """Return the topics to create. Raises KafkaError(INVALID_REQUEST)."""
    return list(as_rows(_rows_of(body, "topics"), _requested_topic))


def encode_created(results: Iterable[tuple[str, int]]) -> Body:
    """Return the response to create_topics: a (topic, Kafka error code) pair per topic."""
    return {"topics": [[topic, int(error)] for topic, error in results]}


def decode_created(body: object) -> dict[str, int]:
    """Return the Kafka error code of each topic in the response to create_topics.

    Raises KafkaError(INVALID_REQUEST).
    """
    return dict(as_rows(_rows_of(body, "topics"), _created))


def encode_settings(settings: Mapping[str, str]) -> Body:
    """Return the body of the call `reconfigure`: the settings in a broker's file."""
    return {"settings": [[name, value] for name, value in settings.items()]}


def decode_settings(body: object) -> dict[str, str]:
    """Return the settings by name; the broker checks their values. Raises KafkaError(INVALID_REQUEST)."""
    return dict(as_rows(as_map(body, {"settings": None})["settings"], _setting))


def encode_changes(changes: Iterable[SettingChange]) -> Body:
    """Return the response to `reconfigure`: the settings that differ between file and running broker."""
    return {"changes": [list(change) for change in changes]}


def decode_changes(body: object) -> list[SettingChange]:
    """Return the changed settings in the response to `reconfigure`. Raises KafkaError(INVALID_REQUEST)."""
    return list(as_rows(_rows_of(body, "changes"), _change))


def encode_step(step: str) -> Body:
    """Return the body of a tool's request to hold or release a step.

    A broker blocks at a held step until the step is released (`broker/step_gate.py`).
    """
    return {"step": step}


def decode_step(body: object) -> str:
    """Return the name of the step to hold or release. The caller checks that such a step exists.

    Raises KafkaError(INVALID_REQUEST).
    """
    return as_text(as_map(body, {"step": None})["step"], _STEP)


def encode_steps(step: str, wait_ms: int) -> Body:
    """Return the body of the call `steps`, which asks a broker at which steps operations are blocked.

    A step is a named point of an operation (`broker/step_gate.py`). The broker responds as soon as an operation
    is blocked at `step`, but at the latest after `wait_ms`.
    """
    return {"step": step, "wait_ms": wait_ms}


def decode_steps(body: object) -> tuple[str, int]:
    """Return (step, maximum wait in ms) from the body of the call `steps`. Raises KafkaError(INVALID_REQUEST)."""
    fields = as_map(body, {"step": None, "wait_ms": 0})
    return as_text(fields["step"], _STEP), as_integer(fields["wait_ms"], 0, _STEP_WAIT_MAX_MS)


def encode_gate_state(held: Iterable[str], blocked: Iterable[str]) -> Body:
    """Return the response to the call `steps`: the held steps, and the steps at which an operation is blocked.

    An operation that reaches a held step is blocked until the step is released.
    """
    return {"held": list(held), "blocked": list(blocked)}


def decode_gate_state(body: object) -> tuple[list[str], list[str]]:
    """Return (held steps, steps at which an operation is blocked) from the response to the call `steps`.

    An operation that reaches a held step is blocked until the step is released. Raises KafkaError(INVALID_REQUEST).
    """
    fields = as_map(body, {"held": [], "blocked": []})
    return list(as_rows(fields["held"], _step)), list(as_rows(fields["blocked"], _step))


def encode_challenge(challenge: str, wall_ms: int) -> Body:
    """Return the response to a request for a challenge. `wall_ms`: the broker's time in Unix milliseconds."""
    return {"challenge": challenge, "wall_ms": wall_ms}


def decode_challenge(body: object) -> tuple[str, int]:
    """Return (challenge, wall time of the broker in Unix milliseconds). Raises KafkaError(INVALID_REQUEST)."""
    fields = as_map(body, {"challenge": None, "wall_ms": None})
    wall_ms = as_integer(fields["wall_ms"], -INT64_MAX, INT64_MAX)
    return as_text(fields["challenge"], _CHALLENGE), wall_ms


def _rows_of(body: object, name: str) -> Any:
    return as_map(body, {name: []})[name]


def _registration(fields: Body) -> tuple[int, int]:
    broker_id = as_integer(fields["broker_id"], -1, INT32_MAX)
    return broker_id, as_integer(fields["broker_epoch"], -1, INT64_MAX)


def _setting(row: object) -> tuple[str, str]:
    name, value = as_row(row, 2)
    return as_text(name, _SETTING), as_text(value, _VALUE)


def _change(row: object) -> SettingChange:
    name, old, new, effect = as_row(row, 4)
    return SettingChange(
        as_text(name, _SETTING), _optional_text(old), _optional_text(new), as_text(effect, _SETTING)
    )


def _optional_text(value: object) -> str | None:
    return None if value is None else as_text(value, _VALUE)


def _step(value: object) -> str:
    return as_text(value, _STEP)


class _Decoder:
    """A decoder for the rows (one list per partition) of one body. Caches the names and broker lists it has checked."""

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}
        self._ids: dict[tuple[Any, ...], tuple[int, ...]] = {(): ()}

    def result(self, row: object) -> tuple[TopicPartition, int]:
        """Decode a row (a list) into a partition and an error code. Raises KafkaError(INVALID_REQUEST)."""
        topic, partition, error = as_row(row, 3)
        tp = TopicPartition(self._topic(topic), as_integer(partition, 0, INT32_MAX))
        return tp, as_error(error)

    def state(self, row: object) -> PartitionState:
        """Decode a row (a list) into a partition's state. Raises KafkaError(INVALID_REQUEST)."""
        topic, partition, leader, epoch, isr, state_version, controller_epoch, *rest = as_row(
            row, 12
        )
        replicas, adding, removing, offline, is_new = rest
        return PartitionState(
            TopicPartition(self._topic(topic), as_integer(partition, 0, INT32_MAX)),
            as_integer(leader, LEADER_DURING_DELETE, INT32_MAX),
            as_integer(epoch, EPOCH_DURING_DELETE, INT32_MAX),
            self._broker_ids(isr),
            as_integer(state_version, -1, INT32_MAX),
            as_integer(controller_epoch, -1, INT32_MAX),
            self._broker_ids(replicas),
            () if adding == [] else self._broker_ids(adding),
            () if removing == [] else self._broker_ids(removing),
            () if offline == [] else self._broker_ids(offline),
            as_boolean(is_new),
        )

    def _topic(self, name: object) -> str:
        known = self._topics.get(name) if type(name) is str else None
        if known is None:
            known = as_text(name, TOPIC_NAME)
            self._topics[known] = known
        return known

    def _broker_ids(self, value: object) -> tuple[int, ...]:
        """Intern equal broker lists as one tuple, to save memory."""
        if not isinstance(value, list | tuple) or len(value) > REPLICAS_MAX:
            raise invalid(f"expected a list of at most {REPLICAS_MAX} broker ids")
        key = tuple(value)
        try:
            known = self._ids.get(key)
        except TypeError as error:
            raise invalid("expected broker ids") from error
        if known is None:
            known = self._ids[key] = tuple([as_broker_id(item) for item in key])
        return known


def _broker_row(broker: Broker, version: str) -> list[Any]:
    endpoints = [[*item[:3], item.security.value] for item in broker.endpoints]
    row = [broker.id, endpoints, broker.epoch, broker.rack]
    return row if version == UNVERSIONED else [*row, list(broker.versions)]


def _broker(row: object) -> Broker:
    broker_id, endpoints, epoch, rack = as_row(row, 4)
    return Broker(
        as_broker_id(broker_id),
        as_rows(endpoints, _endpoint),
        as_integer(epoch, -1, INT64_MAX),
        None if rack is None else _rack(rack),
        _versions(row),
    )


def _versions(row: Any) -> Versions:
    """Return the protocol versions of a broker, which end its row since version 0.2."""
    try:
        return parse_versions(row[4]) if len(row) > 4 else (UNVERSIONED,)
    except ValueError as fault:
        raise invalid(str(fault)) from None


def _endpoint(row: object) -> Endpoint:
    name, host, port, security = as_row(row, 4)
    try:
        protocol = SecurityProtocol(security)
    except ValueError:
        raise invalid("expected the name of a security protocol") from None
    return Endpoint(
        as_text(name, _LISTENER_NAME), as_text(host, _HOST), as_integer(port, 1, 65535), protocol
    )


def _stop_replica(row: object) -> StopReplicaPartition:
    topic, partition, leader_epoch, delete = as_row(row, 4)
    epoch = as_integer(leader_epoch, min(EPOCH_DURING_DELETE, NO_EPOCH), INT32_MAX)
    return StopReplicaPartition(as_topic_partition([topic, partition]), epoch, as_boolean(delete))


def _topic_id(row: object) -> tuple[str, bytes]:
    topic, identifier = as_row(row, 2)
    if not isinstance(identifier, bytes) or len(identifier) != 16:
        raise invalid("a topic id is 16 bytes")
    return as_text(topic, TOPIC_NAME), identifier


def _end(row: object) -> tuple[TopicPartition, int]:
    *tp, end = as_row(row, 3)
    return as_topic_partition(tp), as_integer(end, 0, INT64_MAX)


def _requested_topic(row: object) -> RequestedTopic:
    name, partitions, replication_factor, configs = as_row(row, 4)
    return RequestedTopic(
        as_text(name, TOPIC_NAME),
        as_integer(partitions, 1, INT32_MAX),
        as_integer(replication_factor, 1, INT16_MAX),
        configs=dict(as_rows(configs, _setting)),
    )


def _created(row: object) -> tuple[str, int]:
    topic, error = as_row(row, 2)
    return as_text(topic, TOPIC_NAME), as_error(error)


def _epochs(fields: Body) -> tuple[int, int, int]:
    return (
        as_integer(fields["controller_id"], -1, INT32_MAX),
        as_integer(fields["controller_epoch"], NO_EPOCH, INT32_MAX),
        as_integer(fields["broker_epoch"], -1, INT64_MAX),
    )


def _cause(fields: Body) -> str:
    return as_text(fields["cause"], _CAUSE)


def _rack(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 255:
        raise invalid("expected a rack of at most 255 printable characters")
    return value
