"""The `stage` cluster that the tests of one module share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.clusters.stage import RealStage


@pytest.fixture
async def stage(shared_stage: RealStage) -> AsyncIterator[RealStage]:
    """The module's `shared_stage`, a cluster for crash scenarios. Stopped brokers are started again after the test."""
    try:
        yield shared_stage
    finally:
        await shared_stage.heal()
