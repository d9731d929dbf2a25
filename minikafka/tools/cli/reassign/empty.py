"""The job of `reassign --generate --from-dir`: propose a plan that empties a log directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.client.administration.admin import Admin
from minikafka.client.administration.results import LogDir
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.reassign.jobs import current_replicas
from minikafka.tools.cli.terminal.echo import show


class Empty:
    """The job that proposes a plan which moves all replicas of one log directory to the others of its broker."""

    def __init__(self, broker: BrokerId, path: str) -> None:
        self._broker = broker
        self._path = path

    async def do(self, admin: Admin) -> bool:
        """Print the proposal and return True. Raises KafkaError if the broker has no such directory, or no other."""
        found = await admin.describe_log_dirs(brokers=[self._broker])
        if self._broker not in found:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker {self._broker}")
        entries = {entry.path: entry for entry in found[self._broker]}
        if self._path not in entries:
            known = ", ".join(sorted(entries))
            reason = f"broker {self._broker} has {known}, but not {self._path}"
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, reason)
        source = entries.pop(self._path)
        others = [entry for entry in entries.values() if entry.outcome.ok]
        if not others:
            reason = f"broker {self._broker} has no other directory that works"
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, reason)
        paths = _spread(source, others)
        current = await current_replicas(admin, dict.fromkeys(paths, ()))
        wanted = {(tp, self._broker): path for tp, path in paths.items() if tp in current}
        plan = {tp: current[tp] for tp, _ in wanted}
        shown = {"current": placement.as_json(plan), "proposed": placement.as_json(plan, wanted)}
        lines = ["Proposed partition reassignment configuration", placement.as_text(plan, wanted)]
        show(shown, lines if plan else ["No replica needs to move."])
        return True


def _spread(source: LogDir, others: Iterable[LogDir]) -> Mapping[TopicPartition, str]:
    """Return the new directory of each replica: each time the one with the fewest bytes, the largest replica first."""
    sizes = {entry.path: sum(one.size for one in entry.replicas) for entry in others}
    paths: dict[TopicPartition, str] = {}
    for replica in sorted(source.replicas, key=lambda one: (-one.size, one.tp)):
        if not replica.is_future:
            path = min(sizes, key=lambda each: (sizes[each], each))
            sizes[path] += replica.size
            paths[replica.tp] = path
    return paths
