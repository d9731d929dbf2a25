"""Planning and running of actions: each is a command line, shown first, then run as a child process.

Invariants: an action runs only after a request that confirms it. Its command, the user and the exit code are logged.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from minikafka.base.printable import printable
from minikafka.runtime.spawning import own_environment
from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.errors import RequestRefused, invalid
from minikafka.tools.console.views.action_table import ACTIONS
from minikafka.tools.console.views.arguments import Action, Values

logger = logging.getLogger(__name__)

PLAN_S: Final = 10
OUTPUT_BYTES: Final = 64 * 1024
"""Bytes of a command's output that an answer has; the last ones."""
LOGGED: Final = 1_000
"""Characters of a command line that the log shows; a record that is produced may be long."""
RUN_MAX_S: Final = max(action.limit_s for action in ACTIONS.values())
"""Time for the command of any action."""
_ELSEWHERE: Final = (
    "the console works on processes of its own machine only, and this cluster is elsewhere"
)
END_S: Final = 10
"""Time for a command that is interrupted to end what it has begun."""
_NO_FAULTS: Final = "the cluster was started without faults: `minikafka up --faults` starts one"


class Finished(NamedTuple):
    """A command that has ended. `exit_code`: None if it was ended after its time limit."""

    exit_code: int | None
    output: str


async def list_actions(console: Console, asked: Asked) -> list[dict[str, Any]]:
    """Return all actions, and for each whether this console can do it."""
    return [
        {
            "action": action.name,
            "arguments": [argument.as_json() for argument in action.arguments],
            "is_dangerous": action.is_dangerous,
            "available": not (why_not := _why_not(console, action)),
            "why_not": why_not,
        }
        for action in ACTIONS.values()
    ]


def _why_not(console: Console, action: Action) -> str:
    """Return why this console cannot do an action, "" if it can."""
    if action.on_machine and console.observed.options.machine is None:
        return _ELSEWHERE
    return _NO_FAULTS if action.needs_faults and not console.observed.has_faults() else ""


async def plan_action(console: Console, asked: Asked) -> dict[str, Any]:
    """Return the command of an action, and what it will do: the controller's plan if there is one."""
    action, values = _asked(asked)
    effects = list(action.effects(values))
    answer = {
        "command": _shown(console, action, values),
        "plan": effects,
        "is_dangerous": action.is_dangerous,
    }
    if why_not := _why_not(console, action):
        return {**answer, "why_not": why_not}
    if (words := action.plan(values)) is None:
        return answer
    if action.input(values):
        return {**answer, **await _steps(console, action, values, words)}
    if console.watch.cluster.get("mode") != "leaders":
        found = await _run(console.observed.options.command(*words), "", PLAN_S)
        if found.exit_code == 0:
            answer["plan"] = [*effects, *found.output.splitlines()]
        else:
            answer["plan"] = [*effects, f"the controller has made no plan: {_reason(found)}"]
    return answer


async def _steps(
    console: Console, action: Action, values: Values, words: Sequence[str]
) -> dict[str, Any]:
    """Return the steps of a script as its plan, or why it cannot run."""
    words = console.observed.options.command(*words, on_machine=action.on_machine)
    found = await _run(words, action.input(values), PLAN_S)
    if found.exit_code != 0:
        return {"plan": [], "why_not": _reason(found)}
    return {"plan": [*found.output.splitlines(), *action.effects(values)]}


def _reason(found: Finished) -> str:
    """Return why a command has failed: the last line of its output."""
    lines = found.output.splitlines()
    return lines[-1].removeprefix("minikafka: ") if lines else "it did not end in time"


def _asked(asked: Asked) -> tuple[Action, Values]:
    name = asked.body.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    if action is None:
        raise invalid(f"there is no action {name!r}", f"the actions are {', '.join(ACTIONS)}")
    values = action.values(asked.body.get("arguments", {}))
    action.words(values)  # checks what the arguments are together
    return action, values


def _words(console: Console, action: Action, values: Values) -> list[str]:
    options = console.observed.options
    return options.command(*action.words(values), on_machine=action.on_machine)


def _shown(console: Console, action: Action, values: Values) -> str:
    """Return the command line for people, with its input."""
    command = shlex.join(["minikafka", *_words(console, action, values)])
    given = action.input(values)
    # Not echo: that of some shells reads a backslash as the start of another character.
    return f"printf '%s\\n' {shlex.quote(given.strip())} | {command}" if given else command


async def run_action(console: Console, asked: Asked) -> dict[str, Any]:
    """Run the command of an action that the request confirms; return its exit code and output."""
    action, values = _asked(asked)
    if asked.body.get("confirmed") is not True:
        raise invalid('an action needs "confirmed": true', "show its plan first: /api/actions/plan")
    if why_not := _why_not(console, action):
        raise RequestRefused(409, why_not)
    shown = _shown(console, action, values)
    user = console.observed.user or "the holder of the URL"
    logged = printable(shown[:LOGGED])
    logger.info("%s runs: %s", user, logged)
    words = _words(console, action, values)
    found = await console.run(_run(words, action.input(values), action.limit_s))
    code = "none, its time was over" if found.exit_code is None else found.exit_code
    logger.info("%s ran: %s: exit code %s", user, logged, code)
    console.actions.append(
        {
            "time_ms": console.clock.wall_ms(),
            "user": console.observed.user,
            "command": shown,
            "exit_code": found.exit_code,
        }
    )
    return {"command": shown, **found._asdict()}


async def list_runs(console: Console, asked: Asked) -> list[dict[str, Any]]:
    """Return the last actions of this console, the oldest first."""
    return [*console.actions]


async def _run(words: Sequence[str], given: str, limit_s: float) -> Finished:
    """Run `minikafka WORDS` to its end, and return what it printed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "minikafka",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=own_environment(),
    )
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await child.communicate(given.encode())
    except TimeoutError:
        return Finished(None, f"the command has not ended within {limit_s:g} s, and was ended")
    finally:
        await _end(child)
    text = output[-OUTPUT_BYTES:].decode(errors="replace")
    return Finished(child.returncode, text)


async def _end(child: asyncio.subprocess.Process) -> None:
    """Interrupt a command as Ctrl-C does, so that a script ends its faults; kill it if it does not end then."""
    with suppress(ProcessLookupError, TimeoutError):
        if child.returncode is None:
            child.send_signal(signal.SIGINT)
            async with asyncio.timeout(END_S):
                await child.wait()
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
