"""The console of a cluster that is gone: the same paths, answered from its ledgers, at any time of its life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from minikafka.base.names import is_internal
from minikafka.base.ports import Clock
from minikafka.broker.ledger.reader import Line, merged
from minikafka.tools.console.context import Asked
from minikafka.tools.console.errors import RequestRefused, unknown
from minikafka.tools.console.observation.grid import ISR, LEADER, OFFLINE, REPLICAS, topic_of
from minikafka.tools.console.observation.ledger_files import ledger_files, newest_lines
from minikafka.tools.console.observation.ledger_records import as_record
from minikafka.tools.console.replaying.states import Replay, ReplayedState
from minikafka.tools.console.site import Route, Stream, StreamEvent
from minikafka.tools.console.views.action_table import ACTIONS
from minikafka.tools.console.views.groups import rebalances
from minikafka.tools.console.views.partition import history_of
from minikafka.tools.explain.groups.history import history

READ_BYTES: Final = 32 * 1024 * 1024
"""Bytes of each ledger that are read; the newest ones. Their lines take about ten times as much memory."""
RECORDS_MAX: Final = 200
"""Number of ledger records before the chosen time that a viewer gets."""
PING_MS: Final = 10_000
_GONE: Final = "the console plays the ledgers of a cluster"
_WITHOUT: Final = f"{_GONE}, and ledgers have no records: look at a running cluster"
_NOT_SEEN: Final = "the ledgers have no offsets, records, members or settings"


class LedgerDirectories:
    """The ledger directories of a folder: of a cluster's data directory, of one broker, or copies of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        candidates = [folder, *sorted(folder.glob("*-ledger")), *sorted(folder.glob("*/"))]
        self.found = [one for one in dict.fromkeys(candidates) if ledger_files(one)]
        self.is_cut = False
        """True if older lines were left out."""

    def read(self) -> list[Line]:
        """Return the newest lines of all ledgers, merged. Raises RequestRefused if there is no ledger."""
        if not self.found:
            text = f"{self.folder} has no ledgers (LOG_DIR-ledger/ledger-NNNNNN.jsonl)"
            raise RequestRefused(404, text, "name the data directory of a cluster")
        return merged([self._lines(one) for one in self.found])

    def _lines(self, folder: Path) -> list[Line]:
        found = newest_lines(folder, lambda _: True, READ_BYTES, READ_BYTES)
        self.is_cut = self.is_cut or found.is_cut
        return found.lines


class ReplaySite:
    """The site of the ledgers in one folder."""

    def __init__(self, ledgers: LedgerDirectories, clock: Clock) -> None:
        self._replay = Replay(ledgers.read())
        self._clock = clock
        begin = "older lines were left out" if ledgers.is_cut else ""
        self._unseen = [text for text in (_NOT_SEEN, begin) if text]
        self.routes: Sequence[Route] = [
            Route("GET", "/api/timeline", self._timeline),
            Route("GET", "/api/partition/{topic}/{partition}", self._partition),
            Route("GET", "/api/why/{kind}/{name:.*}", self._refuse_why),
            Route("GET", "/api/groups", self._groups),
            Route("GET", "/api/groups/{group}", self._group),
            Route("GET", "/api/transactions", self._nothing),
            Route("GET", "/api/topics", self._topics),
            Route("GET", "/api/topics/{topic}/configs", self._nothing),
            Route("GET", "/api/records/{topic}", self._refuse_records),
            Route("GET", "/api/actions", self._actions),
            Route("GET", "/api/actions/runs", self._nothing),
            Route("POST", "/api/actions/{verb}", self._refuse_actions),
        ]
        self.streams: Mapping[str, Stream] = {"/api/stream": self._snapshot}

    async def close(self) -> None:
        """Do nothing: the ledgers are in memory."""

    def _time(self, asked: Asked) -> int:
        """Return the time that a request is about; by default, the end of the ledgers."""
        return asked.number("at", self._replay.to_ms or 0)

    def _state(self, asked: Asked) -> ReplayedState:
        return self._replay.at(self._time(asked))

    async def _snapshot(self, asked: Asked) -> AsyncGenerator[StreamEvent, None]:
        """Yield the cluster at the chosen time, and the last ledger records before it."""
        state, at = self._state(asked), self._time(asked)
        topics = set(filter(None, asked.query.get("topics", "").split(",")))
        rows = state.rows()
        yield StreamEvent(
            "snapshot",
            {
                "live": False,
                "time_ms": at,
                "from_ms": self._replay.from_ms,
                "to_ms": self._replay.to_ms,
                "user": None,
                "command": "",
                "can_stop_processes": False,
                "controller": state.controller,
                "controller_epoch": state.controller_epoch,
                "mode": "leaders" if state.controller is None else "controller",
                "zookeeper": {"address": "", "state": "unknown"},
                "brokers": state.broker_rows(),
                "partitions": {
                    name: row
                    for name, row in rows.items()
                    if not topics or topic_of(name) in topics
                },
                "problems": [*_problems(rows)],
                "unseen": [{"what": "the past", "reason": text} for text in self._unseen],
            },
        )
        before = [line for line in self._replay.lines if line["time"] <= at][-RECORDS_MAX:]
        for line in before:
            yield StreamEvent("ledger", as_record(line))
        while True:
            await self._clock.sleep(PING_MS)
            yield StreamEvent("")

    async def _timeline(self, asked: Asked) -> dict[str, Any]:
        replay = self._replay
        return {"from_ms": replay.from_ms, "to_ms": replay.to_ms, "marks": replay.marks()}

    async def _partition(self, asked: Asked) -> dict[str, Any]:
        tp = asked.partition
        row = self._state(asked).rows().get(str(tp))
        past = await asyncio.to_thread(history_of, self._replay.lines, tp)
        if row is None and not past["ledger"]:
            raise unknown(f"partition {tp} in the ledgers")
        states = self._state(asked).brokers
        replicas = row[REPLICAS] if row else []
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader": row[LEADER] if row else None,
            "leader_epoch": row[1] if row else None,
            "isr": row[ISR] if row else None,
            "replicas": [
                {
                    "broker": id_,
                    "state": "running" if states.get(id_, True) else "down",
                    "role": "leader" if row and row[LEADER] == id_ else "follower",
                    "in_isr": bool(row and id_ in row[ISR]),
                    **dict.fromkeys(("lag_ms", "log_start", "high_watermark", "log_end")),
                    "last_stable": None,
                    "epochs": [],
                    "open_transactions": [],
                }
                for id_ in replicas
            ],
            **past,
            "to_ms": self._replay.to_ms,
            "unseen": self._unseen,
        }

    async def _groups(self, asked: Asked) -> list[dict[str, Any]]:
        at = self._time(asked)
        found = []
        for name, lines in sorted(self._replay.groups().items()):
            known = [line for line in lines if line["time"] <= at]
            if known:
                found.append(
                    {
                        "group": name,
                        "state": str(known[-1]["fact"]),
                        "coordinator": known[-1]["broker"],
                        "members": known[-1].get("members"),
                        "protocol": None,
                        "lag": None,
                    }
                )
        return found

    async def _group(self, asked: Asked) -> dict[str, Any]:
        name = asked.path["group"]
        lines = self._replay.groups().get(name)
        if lines is None:
            raise unknown(f"group {name} in the ledgers")
        known = [line for line in lines if line["time"] <= self._time(asked)]
        return {
            "group": name,
            "state": str(known[-1]["fact"]) if known else None,
            "coordinator": known[-1]["broker"] if known else None,
            "protocol": None,
            "members": [],
            "offsets": [],
            "rebalances": [*rebalances(history(known))],
            "unseen": self._unseen,
        }

    async def _topics(self, asked: Asked) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for name, row in self._state(asked).rows().items():
            topic = topic_of(name)
            empty = {"topic": topic, "id": None, "partitions": 0, "replication_factor": 0}
            rest = {"internal": is_internal(topic), "bytes": None, "configs": None}
            one = found.setdefault(topic, {**empty, **rest})
            one["partitions"] += 1
            one["replication_factor"] = max(one["replication_factor"], len(row[REPLICAS]))
        return [found[topic] for topic in sorted(found)]

    async def _nothing(self, asked: Asked) -> list[Any]:
        return []

    async def _refuse_records(self, asked: Asked) -> None:
        raise RequestRefused(409, _WITHOUT)

    async def _refuse_why(self, asked: Asked) -> None:
        hint = "the history of the partition says what happened; `minikafka why` also reads the files of a cluster"
        raise RequestRefused(409, f"{_GONE}, whose brokers cannot be asked", hint)

    async def _refuse_actions(self, asked: Asked) -> None:
        raise RequestRefused(409, f"{_GONE}, so nothing can be done to it")

    async def _actions(self, asked: Asked) -> list[dict[str, Any]]:
        why_not = f"{_GONE}, so nothing can be done to it"
        return [
            {
                "action": action.name,
                "arguments": [argument.as_json() for argument in action.arguments],
                "is_dangerous": action.is_dangerous,
                "available": False,
                "why_not": why_not,
            }
            for action in ACTIONS.values()
        ]


def _problems(rows: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    """Yield how many partitions had no leader, and how many lacked replicas."""
    offline = [name for name, row in rows.items() if row[LEADER] is None]
    behind = [
        name for name, row in rows.items() if row[OFFLINE] or not {*row[REPLICAS]} <= {*row[ISR]}
    ]
    for name, some, text in (
        ("offline", offline, "without a leader"),
        ("under-replicated", behind, "with a replica that is down or not in sync"),
    ):
        if some:
            more = f" and {len(some) - 3} more" if len(some) > 3 else ""
            sentence = f"partitions {text}: {', '.join(some[:3])}{more}"
            yield {"name": name, "text": sentence, "remedy": "", "broker": None}
