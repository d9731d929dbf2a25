"""The notes about the life of a state-change request: requested, received, completed, refused (C38).

The wording is part of the design: "leader, broker id 0, requested start-replica for topic foo partition 0, to broker
id 1, at epoch 10". A request of an administrator has no leader: its lines name the administrator instead.
"""

from __future__ import annotations

from minikafka.base.model import BrokerId
from minikafka.deciders.leaders.commands import Note
from minikafka.deciders.leaders.model import FROM_ADMINISTRATOR, Operation, StateChange


def requested(request: StateChange, receiver: BrokerId) -> Note:
    """Return the ledger line of the sender, which says that the request is in the queue of `receiver`."""
    sender = request.sender
    who = "administrator" if sender == FROM_ADMINISTRATOR else f"leader, broker id {sender}"
    text = (
        f"{who}, requested {_subject(request)}, to broker id {receiver}, at epoch {request.epoch}"
    )
    return _note("requested", text, request, receiver)


def received(request: StateChange, receiver: BrokerId) -> Note:
    """Return the ledger line of the receiver, which says that it has read the request from its queue."""
    text = (
        f"follower, broker id {receiver}, received {_subject(request)}, "
        f"from {_sender(request)}, at epoch {request.epoch}"
    )
    return _note("received", text, request, receiver)


def completed(request: StateChange, receiver: BrokerId) -> Note:
    """Return the ledger line of the receiver, which says that it has carried out the request."""
    return _note("completed", _outcome("completed", request, receiver), request, receiver)


def refused(request: StateChange, receiver: BrokerId, reason: str) -> Note:
    """Return the ledger line of the receiver, which says why it did not carry out the request."""
    text = f"{_outcome('refused', request, receiver)}: {reason}"
    return _note("refused", text, request, receiver)


def _outcome(verb: str, request: StateChange, receiver: BrokerId) -> str:
    return (
        f"follower, broker id {receiver}, {verb} {_subject(request)}, "
        f"request from {_sender(request)}, at epoch {request.epoch}"
    )


def _subject(request: StateChange) -> str:
    if request.operation is Operation.RESCAN:
        return request.operation.value
    return f"{request.operation} for topic {request.tp.topic} partition {request.tp.partition}"


def _sender(request: StateChange) -> str:
    if request.sender == FROM_ADMINISTRATOR:
        return "the administrator"
    return f"leader {request.sender}"


def _note(stage: str, text: str, request: StateChange, receiver: BrokerId) -> Note:
    fields = {
        "kind": stage,
        "operation": request.operation.value,
        "sender": request.sender,
        "receiver": receiver,
        "epoch": request.epoch,
    }
    return Note(text, request.tp, fields)
