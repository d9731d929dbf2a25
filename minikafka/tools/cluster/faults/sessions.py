"""The end of a broker's ZooKeeper session while the broker lives, and the loss of a coordinator."""

from __future__ import annotations

from pathlib import Path

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError, NotConnected
from minikafka.base.names import GROUP_TOPIC, TRANSACTION_TOPIC, parse_json
from minikafka.base.zookeeper import SESSION_FILE, decode_session
from minikafka.broker.rpc.messages import EXPLAIN_GROUP
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.processes import ProcessFaults
from minikafka.tools.cluster.launch.launcher import POLL_MS
from minikafka.tools.cluster.observation.access import inter_broker_access
from minikafka.tools.cluster.observation.observed import WAIT_MS
from minikafka.tools.cluster.observation.state import STATE_TIMEOUT_MS
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.zookeeper.access import access_of_cluster


class SessionFaults(ProcessFaults):
    """The methods of LocalCluster that end sessions, and that harm the coordinator of a client."""

    async def expire_session(self, broker_id: int) -> None:
        """End a broker's ZooKeeper session at the server, as an expiry does. A broker that lives registers again.

        Return when the session has ended. Raises ClusterError if the broker has no session within 10 s.
        """
        self.record.broker(broker_id)
        deadline = self._clock.now() + STATE_TIMEOUT_MS
        while True:
            problem = f"broker {broker_id} has no session with ZooKeeper to end"
            try:
                if await self._end_session(broker_id):
                    return
                process = self.process(broker_id)
                if process is None or is_paused(process):
                    raise ClusterError(problem)
            except NotConnected as error:  # also if the broker itself ends the session meanwhile
                problem = str(error)
            if self._clock.now() >= deadline:
                raise ClusterError(problem)
            await self._clock.sleep(POLL_MS)

    async def _end_session(self, broker_id: int) -> bool:
        """End the session in the broker's file. Return False if there is none. Raises NotConnected."""
        from minikafka.runtime.transport import SocketTransport
        from minikafka.zookeeper.client.client import close_session

        if (session := self._session_of(broker_id)) is None:
            return False
        try:
            access = access_of_cluster(self.directory, self.record, self._rng)
            return await close_session(
                self.zookeeper, *session, self._clock, SocketTransport(), access
            )
        except ConfigError as error:
            raise ClusterError(str(error)) from error

    def _session_of(self, broker_id: int) -> tuple[int, bytes] | None:
        """Return the id and password of the broker's latest session; None before its first session."""
        config = self.directory.broker_config(broker_id)
        first = Path(config.log_dirs[0]) if config else self.directory.broker_data(broker_id)
        try:
            return decode_session(parse_json((first / SESSION_FILE).read_bytes()))
        except FileNotFoundError:
            return None

    async def coordinator_of(
        self, group: str | None = None, *, transactional_id: str | None = None
    ) -> int:
        """Return the id of the broker that coordinates a group, or a transactional id.

        Raises ClusterError if there is no such group or id, or no coordinator within a minute.
        """
        if (group is None) == (transactional_id is None):
            raise ClusterError("name either a group or a transactional id")
        if group is not None:
            return await self._group_coordinator(group)
        assert transactional_id is not None
        return await self._transaction_coordinator(transactional_id)

    async def lose_coordinator(
        self,
        group: str | None = None,
        *,
        transactional_id: str | None = None,
        pause: bool = False,
    ) -> int:
        """Kill (or with `pause`, pause) the coordinator of a group or of a transactional id. Return the broker's id."""
        broker_id = await self.coordinator_of(group, transactional_id=transactional_id)
        await (self.pause(broker_id) if pause else self.kill(broker_id))
        return broker_id

    async def _group_coordinator(self, group: str) -> int:
        deadline = self._clock.now() + WAIT_MS
        while True:
            answers = await self.ask(EXPLAIN_GROUP, {"group": group})
            found = {
                broker_id: answer
                for broker_id, answer in answers.items()
                if not isinstance(answer, Exception) and not answer["error"]
            }
            newest = max(found, key=lambda id_: found[id_].get("leader_epoch", -1), default=None)
            if newest is not None and found[newest]["group"] is not None:
                return newest
            if newest is not None or (not found and not await self._has_topic(GROUP_TOPIC)):
                raise ClusterError(f"there is no group {group}")
            if self._clock.now() >= deadline:
                raise ClusterError(f"group {group} has no coordinator")
            await self._clock.sleep(POLL_MS)

    async def _has_topic(self, topic: str) -> bool:
        return any(tp.topic == topic for tp in (await self.state()).partitions)

    async def _transaction_coordinator(self, transactional_id: str) -> int:
        from minikafka.client import Client

        # A request for the coordinator would create the topic.
        if not await self._has_topic(TRANSACTION_TOPIC):
            raise ClusterError(f"there is no transactional id {transactional_id}")
        access = inter_broker_access(self.directory, self.record.brokers, self._rng)
        try:
            async with Client(access.servers, connector=access.connector) as client:
                results = await client.transactions.describe([transactional_id])
        except KafkaError as error:
            raise ClusterError(f"transactional id {transactional_id}: {error}") from error
        outcome, found = results[transactional_id]
        if found is not None:
            return found.coordinator
        if outcome.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise ClusterError(f"there is no transactional id {transactional_id}")
        raise ClusterError(f"transactional id {transactional_id}: {outcome}")
