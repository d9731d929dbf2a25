"""A group coordinator in memory with a ledger, and the findings of `minikafka why --group` about a group."""

from __future__ import annotations

import json
from typing import Any

from support.deciders.group_world import GROUP, GroupWorld

from minikafka.broker.ledger.reader import Line
from minikafka.broker.ledger.record import GROUP as KIND
from minikafka.deciders.groups.commands import Command, Note
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.groups.evidence import GroupEvidence
from minikafka.tools.explain.groups.history import HistoryEntry, history
from minikafka.tools.explain.groups.why import explain_group

BROKER = 1


class GroupLedgerWorld(GroupWorld):
    """A GroupWorld in which broker 1 coordinates all groups and records a ledger."""

    def __init__(self, **settings: Any) -> None:
        self.lines: list[Line] = []
        self.topics = ["t", "u"]
        """Topics that exist, each with one partition."""
        super().__init__(**settings)

    def run(self, commands: list[Command]) -> None:
        for note in commands:
            if isinstance(note, Note):
                line = {
                    "time": self.wall_ms(),
                    "broker": BROKER,
                    "n": len(self.lines) + 1,
                    "kind": KIND,
                    "cause": "",
                    "fact": note.kind,
                    "group": note.group_id,
                    "generation": note.generation,
                    **note.fields,
                }
                self.lines.append(json.loads(json.dumps(line)))
        super().run(commands)

    def entries(self) -> list[HistoryEntry]:
        return history(self.lines)

    def evidence(self, **more: Any) -> GroupEvidence:
        leaders = [[topic, 0, BROKER] for topic in self.topics]
        answer = {**self.coordinator.explain(GROUP, self.now), "leaders": leaders}
        answers = {BROKER: json.loads(json.dumps(answer))}
        return GroupEvidence(
            **{
                "group": GROUP,
                "wall_ms": self.wall_ms(),
                "answers": answers,
                "history": self.entries(),
                "lags": [],
                **more,
            }
        )

    def why(self, **more: Any) -> list[Finding]:
        return explain_group(self.evidence(**more))
