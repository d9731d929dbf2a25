"""Output that is shown again after each interval."""

from __future__ import annotations

import asyncio

import pytest
from rich.text import Text

from minikafka.cli.watch import watch_lines


@pytest.mark.parametrize("as_json", [True, False])
async def test_watch_in_a_pipe_prints_each_output_until_it_is_cancelled(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    count = 0

    async def read() -> list[Text]:
        nonlocal count
        count += 1
        if count == 3:
            raise asyncio.CancelledError
        return [Text(f"first of {count}", "red"), Text("second")]

    with pytest.raises(asyncio.CancelledError):
        await watch_lines(read, 0.001, as_json=as_json)
    assert capsys.readouterr().out == "first of 1\nsecond\nfirst of 2\nsecond\n"
