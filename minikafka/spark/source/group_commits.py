"""The offsets that a stream has read, committed as those of a consumer group, for tools that show the lag of groups.

The checkpoint alone determines where the query continues. Spark asks for the end of the next micro-batch only when the
previous one is finished, also at the end of a run with the trigger available-now. So the start of that question is
what the query has read, and a group never has offsets of rows that may be read again.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import ConfigError, KafkaError
from minikafka.spark.source import planning
from minikafka.spark.source.options import GROUP, ReadOptions
from minikafka.spark.source.positions import Positions
from minikafka.spark.wire.coordinators import Coordinator
from minikafka.spark.wire.leaders import Unreachable
from minikafka.spark.wire.transactions import (
    OF_GROUPS,
    OFFSET_COMMIT,
    offset_commit_request,
    parse_offset_commit,
)

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 3.0
"""Time for a commit. The query does not wait longer for the coordinator, because only the shown lag depends on it."""


class GroupCommits:
    """The commits of one stream. After the first one, a commit that fails is only a warning."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._committed: Positions = {}
        self._has_begun = False
        self._warned = ""

    def commit(self, options: ReadOptions, read: Positions) -> None:
        """Commit the positions that were read, if they are new. Raises `ConfigError` if the first commit is refused."""
        if self._group is None or not read or read == self._committed:
            return
        try:
            self._send(options, self._group, read)
        except (KafkaError, Unreachable) as error:
            text = f"option {GROUP}: the offsets of group {self._group} were not committed: {error}"
            if not self._has_begun and isinstance(error, KafkaError):
                raise ConfigError(
                    f"{text}; name a group without members, to which the user may commit"
                ) from error
            if text != self._warned:  # a stream asks at each trigger
                logger.warning("%s", text)
            self._warned = text
            return
        self._committed, self._has_begun, self._warned = dict(read), True, ""

    def _send(self, options: ReadOptions, group: str, read: Positions) -> None:
        with planning.kept(options) as leaders:
            coordinator = Coordinator(leaders, OF_GROUPS, group, _PATIENCE_S)
            coordinator.call(OFFSET_COMMIT, offset_commit_request(group, read), parse_offset_commit)
