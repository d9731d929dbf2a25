"""The settings in which running brokers differ from their configuration, as `up` and `restart` print them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import minikafka.broker.rpc.messages as messages
from minikafka.base.errors import KafkaError

_EFFECTS: Final = {
    "now": "in effect now",
    "restart": "takes effect at the next start",
    "overridden": "no effect while `configs set` overrides it",
    "started": "takes effect with this start, unless `configs set` overrides it",
}


class Differences(NamedTuple):
    """The result of comparing running brokers with their configuration.

    `changes`: changed setting -> ids of the brokers whose answers contained the change. `errors`: broker id -> the
    error because of which the broker was not compared.
    """

    changes: Mapping[messages.SettingChange, Sequence[int]]
    errors: Mapping[int, Exception]

    @classmethod
    def of(
        cls, answers: Mapping[int, Sequence[messages.SettingChange] | OSError | KafkaError]
    ) -> Differences:
        """Return the changed settings in the brokers' answers, each with the brokers that reported the change."""
        changes: dict[messages.SettingChange, list[int]] = {}
        errors: dict[int, Exception] = {}
        for broker_id, answer in sorted(answers.items()):
            if isinstance(answer, Exception):
                errors[broker_id] = answer
                continue
            for change in answer:
                changes.setdefault(change, []).append(broker_id)
        return cls(changes, errors)

    def lines(self, data: str | None) -> list[str]:
        """Return a line for each changed setting and each error, and the command for necessary restarts."""
        lines = [
            f"{change_text(change)} on {listed([str(id_) for id_ in ids])}: {_EFFECTS[change.effect]}"
            for change, ids in self.changes.items()
        ]
        lines += [
            f"broker {id_} was not compared with the configuration: {error}"
            for id_, error in self.errors.items()
        ]
        late = {id_ for c, ids in self.changes.items() if c.effect == "restart" for id_ in ids}
        if late:
            names = " ".join(map(str, sorted(late)))
            where = f" --data {shlex.quote(data)}" if data else ""
            lines.append(f"to restart them: minikafka restart {names} --rolling{where}")
        return lines

    def as_json(self) -> list[dict[str, Any]]:
        """Return the changed settings as JSON objects, for `up --json`."""
        return [{**change._asdict(), "brokers": list(ids)} for change, ids in self.changes.items()]


def change_text(change: messages.SettingChange) -> str:
    """Return the old and the new value of a changed setting as text."""
    if change.effect == "overridden":
        return f"{change.name} = {change.new}, set to {change.old} at run time,"
    new = "not set" if change.new is None else change.new
    return f"{change.name} = {new} (was {'not set' if change.old is None else change.old})"


def listed(names: Sequence[str]) -> str:
    """Return process names as text, for example `ZooKeeper, brokers 1, 2`."""
    brokers = [name for name in names if name != "ZooKeeper"]
    words = ["ZooKeeper"] if "ZooKeeper" in names else []
    if brokers:
        words.append(f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}")
    return ", ".join(words)
