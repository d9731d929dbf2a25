"""The ledger lines of the mode: what the machine notes about its decisions and about state-change requests (C38)."""

from __future__ import annotations

from minikafka.base.ports import Ledger
from minikafka.leaders.commands import Note
from minikafka.ledger.record import STATE_CHANGE


class Lines:
    """Writes the lines of one broker."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def note(self, note: Note) -> None:
        """Write a line of the machine: `fact` is its kind, and `text` its sentence for people."""
        fields = {name: value for name, value in note.fields.items() if name != "kind"}
        self._ledger.record(
            STATE_CHANGE,
            "",
            {
                "fact": note.fields["kind"],
                "topic": note.tp.topic,
                "partition": note.tp.partition,
                **fields,
                "text": note.text,
            },
        )
