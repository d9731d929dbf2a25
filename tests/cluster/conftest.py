"""The cluster that all tests of this folder share, and the `stage` cluster that the tests of one module share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.running_cluster import cluster, shared_cluster
from support.stage import RealStage

__all__ = ["cluster", "shared_cluster"]


@pytest.fixture
async def stage(shared_stage: RealStage) -> AsyncIterator[RealStage]:
    """The module's `shared_stage`, a cluster for crash scenarios. Stopped brokers are started again after the test."""
    try:
        yield shared_stage
    finally:
        await shared_stage.heal()
