"""What the verbs of a script do to a cluster, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.fault import Fault, Hits
from minikafka.tools.cluster.faults.script.verbs import CONTROLLER, HELD, LEADER, VERBS
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.proxy.rules import ZOOKEEPER

Cluster: TypeAlias = Any
"""A LocalCluster, whose module imports this one."""
End: TypeAlias = Callable[[], Coroutine[Any, Any, Hits]]


class Begun(NamedTuple):
    """A fault that has begun. `hits`: what it has hit already. `end`: ends it, and returns what else it has hit."""

    hits: Hits
    end: End | None = None


PROCESS: Final[Hits] = {"processes": 1}
COORDINATOR: Final[Hits] = {"coordinators": 1}
SESSION: Final[Hits] = {"sessions": 1}
NOTHING: Final[Hits] = {}


async def begin(
    cluster: Cluster, verb: str, arguments: Mapping[str, Any], held: int | None
) -> Begun:
    """Carry out a verb. `held`: the broker that is blocked at the step of the trigger. Raises ClusterError."""
    given: dict[str, Any] = {
        key: await _resolved(cluster, value, held) for key, value in arguments.items()
    }
    if verb in _PROCESS_VERBS:
        return await _PROCESS_VERBS[verb](cluster, given["broker"])
    if verb == "expire_session":
        await cluster.expire_session(given["broker"])
        return Begun(SESSION)
    if verb == "lose_coordinator":
        return await _lose_coordinator(cluster, given)
    if "broker" in given:
        broker = given.pop("broker")
        fault: Fault = await getattr(cluster, verb)(broker, **given)
    else:
        fault = await getattr(cluster, verb)(**given)
    if not VERBS[verb].lasts:
        return Begun(fault.hits)
    return _ended_by(fault)


async def _resolved(cluster: Cluster, value: object, held: int | None) -> object:
    """Return the id of the broker that a name stands for; another value is returned unchanged."""
    if value == HELD:
        return held
    if value == CONTROLLER:
        controller = (await cluster.state()).controller
        if controller is None:
            raise ClusterError("the cluster has no controller now")
        return controller
    if isinstance(value, str) and (found := LEADER.fullmatch(value)):
        return await cluster.leader_of(found["topic"], int(found["partition"]))
    return value


def _ended_by(fault: Fault) -> Begun:
    async def end() -> Hits:
        hits: Hits = await fault.heal()
        return hits

    return Begun(NOTHING, end)


async def _kill(cluster: Cluster, process: int | str) -> Begun:
    await (cluster.kill_zookeeper() if process == ZOOKEEPER else cluster.kill(int(process)))
    return _until_started(cluster, process)


async def _stop(cluster: Cluster, process: int | str) -> Begun:
    await (cluster.stop_zookeeper() if process == ZOOKEEPER else cluster.stop(int(process)))
    return _until_started(cluster, process)


def _until_started(cluster: Cluster, process: int | str) -> Begun:
    async def end() -> Hits:
        if process == ZOOKEEPER:
            if cluster.zookeeper_process() is None:
                await cluster.start_zookeeper()
        elif cluster.process(int(process)) is None:
            await cluster.start(int(process))
        return NOTHING

    return Begun(PROCESS, end)


def _check_paused(cluster: Cluster, process: int | str, expected: bool) -> None:
    """Raise ClusterError if a process that runs is paused but should not be, or is not but should be."""
    is_zookeeper = process == ZOOKEEPER
    found = cluster.zookeeper_process() if is_zookeeper else cluster.process(int(process))
    if found is not None and is_paused(found) is not expected:
        name = "ZooKeeper" if is_zookeeper else f"broker {process}"
        raise ClusterError(f"{name} is {'not' if expected else 'already'} paused")


async def _pause(cluster: Cluster, process: int | str) -> Begun:
    _check_paused(cluster, process, False)
    await (cluster.pause_zookeeper() if process == ZOOKEEPER else cluster.pause(int(process)))

    async def end() -> Hits:
        if process == ZOOKEEPER:
            if cluster.zookeeper_process() is not None:
                await cluster.resume_zookeeper()
        elif cluster.process(int(process)) is not None:
            await cluster.resume(int(process))
        return NOTHING

    return Begun(PROCESS, end)


async def _resume(cluster: Cluster, process: int | str) -> Begun:
    _check_paused(cluster, process, True)
    await (cluster.resume_zookeeper() if process == ZOOKEEPER else cluster.resume(int(process)))
    return Begun(PROCESS)


async def _start(cluster: Cluster, process: int | str) -> Begun:
    await (cluster.start_zookeeper() if process == ZOOKEEPER else cluster.start(int(process)))
    return Begun(PROCESS)


async def _restart(cluster: Cluster, process: int | str) -> Begun:
    await cluster.restart(int(process))
    return Begun(PROCESS)


_PROCESS_VERBS: Mapping[str, Callable[[Cluster, int | str], Coroutine[Any, Any, Begun]]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "resume": _resume,
    "start": _start,
    "restart": _restart,
}


async def _lose_coordinator(cluster: Cluster, given: Mapping[str, Any]) -> Begun:
    ids = {"transactional_id": given.get("transactional_id")}
    broker = await cluster.coordinator_of(given.get("group"), **ids)
    begun = await (_pause if given.get("pause") else _kill)(cluster, broker)
    return begun._replace(hits=COORDINATOR)
