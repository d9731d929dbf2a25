"""Faults of processes: kill, pause and resume them, or hold them at a named step."""

from __future__ import annotations

from collections.abc import Collection

from minikafka.broker.rpc.messages import HOLD_STEP, RELEASE_STEP, encode_step
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.names import check_step
from minikafka.tools.cluster.launch.launcher import POLL_MS
from minikafka.tools.cluster.observation.observed import WAIT_MS, ObservedCluster
from minikafka.tools.cluster.observation.state import STATE_TIMEOUT_MS
from minikafka.tools.cluster.observation.step_watch import find_blocked_broker
from minikafka.tools.cluster.processes import ProcessId, kill


class ProcessFaults(ObservedCluster):
    """The methods of LocalCluster that harm processes."""

    async def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL; return when the process is gone."""
        await kill(self._running_broker(broker_id), self._clock)

    async def pause(self, broker_id: int) -> None:
        """Pause a broker with SIGSTOP: it keeps its connections and does nothing."""
        await self._running.set_paused(self._running_broker(broker_id), True)

    async def resume(self, broker_id: int) -> None:
        """Resume a paused broker with SIGCONT."""
        await self._running.set_paused(self._running_broker(broker_id), False)

    async def kill_zookeeper(self) -> None:
        """Kill the cluster's ZooKeeper with SIGKILL; return when the process is gone."""
        await kill(self._running_zookeeper(), self._clock)

    async def pause_zookeeper(self) -> None:
        """Pause the cluster's ZooKeeper with SIGSTOP: it keeps its connections and does nothing."""
        await self._running.set_paused(self._running_zookeeper(), True)

    async def resume_zookeeper(self) -> None:
        """Resume the paused ZooKeeper with SIGCONT."""
        await self._running.set_paused(self._running_zookeeper(), False)

    def _running_zookeeper(self) -> ProcessId:
        """Return the process of the cluster's ZooKeeper. Raises ClusterError if there is none."""
        process = self.zookeeper_process()
        if process is None:
            raise self._no_zookeeper()
        return process

    def _no_zookeeper(self) -> ClusterError:
        if self.record.runs_zookeeper:
            return ClusterError("ZooKeeper is not running", "minikafka start zookeeper")
        text = f"this cluster runs no ZooKeeper of its own: it uses {self.zookeeper}"
        return ClusterError(text)

    async def hold(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Make brokers block at a step, named `operation.step` (see `deciders/controller/steps.py`) or `broker.METHOD`.

        `brokers` defaults to all brokers that run and are not paused, including the active controller.
        Brokers that are started later do not block.
        """
        check_step(step)
        await self._call_gates(HOLD_STEP, step, brokers)

    async def release(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Unblock a named step (see `hold`), so that a broker that is blocked at this step continues."""
        await self._call_gates(RELEASE_STEP, step, brokers)

    async def held(self, step: str, timeout_ms: int = WAIT_MS) -> int:
        """Wait until a broker blocks at this step, and return its id.

        Raises ClusterError after `timeout_ms`.
        """
        deadline = self._clock.now() + timeout_ms
        while self._clock.now() < deadline:
            ids = self._running.answering_ids(self.record)
            found = await find_blocked_broker(
                step, self.directory, self.record, ids, self._clock, self._rng
            )
            if found is not None:
                return found
            await self._clock.sleep(POLL_MS)
        raise ClusterError(f"no broker reached step {step} within {timeout_ms / 1000:g} s")

    async def _call_gates(self, method: str, step: str, brokers: Collection[int] | None) -> None:
        chosen = self._running.answering_ids(self.record) if brokers is None else brokers
        answers = await self.ask(method, encode_step(step), STATE_TIMEOUT_MS, chosen)
        for broker, answer in answers.items():
            # A broker that still starts refuses connections, and no step is held there.
            if isinstance(answer, ConnectionRefusedError):
                continue
            if isinstance(answer, Exception) and self.process(broker) is not None:
                raise ClusterError(f"broker {broker} did not {method.replace('_', ' ')}: {answer}")
