"""The elected controller that most tests of a term begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.controller_bench import ControllerBench


@pytest.fixture
async def bench() -> AsyncIterator[ControllerBench]:
    bench = await ControllerBench().elected()
    yield bench
    await bench.close()
