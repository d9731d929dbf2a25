"""A controller that is paused in the middle of an operation, loses its session, and is resumed later.

When it is resumed, another broker has become controller and finished the operation. The requests and writes of the
former controller must have no effect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from support.clusters.operations import Cast, staged
from support.clusters.stage import BROKERS, RealStage, eventually, running_stage
from support.ledger.invariants import check_ledgers

from minikafka.base.errors import ErrorCode
from minikafka.broker.rpc.messages import UPDATE_METADATA
from minikafka.zookeeper.nodes import layout

STOPPED_AT = [
    "creation.partitions-online",
    "reassignment.A1",
    "reassignment.B3",
    "reassignment.B6",
    "deletion.deletion-started",
    "deletion.topic-gone",
    "controlled-shutdown.leaders-moved",
]
"""Steps that begin with a write to ZooKeeper or with requests to brokers."""


@pytest.fixture(scope="module")
def shared_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStage]:
    data = tmp_path_factory.mktemp("zombie")
    yield from running_stage(data, request_timeout_ms=5_000)
    check_ledgers(data)


@pytest.mark.row("D1", "R9")
@pytest.mark.parametrize("step", STOPPED_AT)
async def test_zombie_controller_changes_nothing_when_it_is_resumed(
    stage: RealStage, step: str
) -> None:
    cast = Cast.of(stage)
    epoch = stage.controller_epoch()
    operation, _, named = step.partition(".")
    staging = staged(stage, cast, operation, named, f"z{STOPPED_AT.index(step)}")
    await staging.prepare()
    async with stage.stream(staging.written, len(staging.bystander)) as stream:
        await stage.cluster.hold(step)
        asked = asyncio.create_task(staging.ask())
        assert await stage.cluster.held(step) == cast.controller
        await stage.cluster.pause(cast.controller)
        await stage.end_session(cast.controller)
        await stage.cluster.release(step)
        await eventually(lambda: stage.controller() not in (None, cast.controller))
        await asked
        await eventually(lambda: not staging.missing(), staging.missing)
        await stream.stop()
        before = decided(stage)

        # Resume the controller only when the request that releases the step waits in its socket.
        waiting = stage.unread(cast.controller)
        going_on = asyncio.create_task(stage.cluster.release(step, [cast.controller]))
        await eventually(lambda: stage.unread(cast.controller) > waiting)
        await stage.cluster.resume(cast.controller)
        await going_on
        await eventually(lambda: stage.read(layout.broker_path(cast.controller)) is not None)
        await stage.cluster.start()

        assert decided(stage) == before
        await assert_refused(stage, epoch)
        await eventually(lambda: not staging.missing(), staging.missing)
        await staging.confirm()
        await stream.check()


def decided(stage: RealStage) -> dict[str, object]:
    """Return the content of every node that a controller writes, by path.

    Partition states are reduced to the controller epoch, leader and leader epoch, because a leader may change the ISR.
    """
    tree: dict[str, object] = dict(stage.tree())
    for path in tree:
        if path.endswith("/state"):
            state = json.loads(stage.read(path) or b"{}")
            tree[path] = [state[key] for key in ("controller_epoch", "leader", "leader_epoch")]
    return tree


async def assert_refused(stage: RealStage, former_epoch: int) -> None:
    """Check that every broker refuses a request with the former controller's epoch."""
    request = {
        "controller_id": 1,
        "controller_epoch": former_epoch,
        "broker_epoch": -1,
        "partitions": [],
        "brokers": [],
        "topic_ids": [],
        "suspects": [],
        "cause": "",
    }
    answers = await stage.cluster.ask(UPDATE_METADATA, request, 30_000)
    assert set(answers) == set(BROKERS)
    for answer in answers.values():
        assert not isinstance(answer, Exception), answer
        assert answer["error"] == ErrorCode.STALE_CONTROLLER_EPOCH
