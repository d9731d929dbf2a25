"""The controller in office that most tests of a term begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.controller_office import Office


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = await Office().start()
    yield office
    await office.candidate.close()
