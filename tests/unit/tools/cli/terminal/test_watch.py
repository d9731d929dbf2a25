"""Output that is shown again after each interval."""

from __future__ import annotations

import asyncio

import pytest
from rich.text import Text
from support.commands.json_output import json_output

from minikafka.tools.cli.terminal.watch import watch_lines


@pytest.mark.parametrize("as_json", [True, False])
async def test_watch_in_a_pipe_prints_each_output_until_it_is_cancelled(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    count = 0

    async def read() -> tuple[object, list[Text]]:
        nonlocal count
        count += 1
        if count == 3:
            raise asyncio.CancelledError
        return {"count": count}, [Text(f"first of {count}", "red"), Text("second")]

    with json_output(as_json), pytest.raises(asyncio.CancelledError):
        await watch_lines(read, 0.001)
    lines = "first of 1\nsecond\nfirst of 2\nsecond\n"
    assert capsys.readouterr().out == ('{"count": 1}\n{"count": 2}\n' if as_json else lines)


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_watched_lines_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    seen = asyncio.Event()

    async def read() -> tuple[object, list[Text]]:
        if seen.is_set():
            raise asyncio.CancelledError
        seen.set()
        return {}, [Text("group g\n\x1b[2J\x9b")]

    with pytest.raises(asyncio.CancelledError):
        await watch_lines(read, 0.001)
    assert r"group g\n\u001b[2J\u009b" in capsys.readouterr().out
