"""`kafka-consumer-groups.sh`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from minikafka.base.errors import MinikafkaError
from minikafka.client import Client, Outcome
from minikafka.client.administration.group_admin import GroupDescription
from minikafka.tools.cli.groups.describe import (
    DEAD,
    EMPTY,
    REBALANCING,
    member_columns,
    offset_columns,
    read_offsets,
)
from minikafka.tools.cli.groups.offset_resets import (
    PLAN,
    Scenario,
    TopicScope,
    parse_datetime,
    parse_duration,
    parse_scopes,
    plan_rows,
    write_csv,
)
from minikafka.tools.cli.groups.reset_plan import Reset, apply_plan, find_partitions
from minikafka.tools.cli.kafka_home.connection import connected, exception_text, failed
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.columns import lines
from minikafka.tools.cli.terminal.echo import echo

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_SCENARIOS: Final = (
    "to-offset",
    "from-file",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "shift-by",
)
_STATE: Final = "{:<{width}} {:<25} {:<20} {:<15} {}"


def run(arguments: Arguments) -> None:
    """Do the one action that the options name. Raises MinikafkaError."""
    action = arguments.only_one_of(_ACTIONS)
    work = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    if action != "list" and not (arguments.has("group") or arguments.has("all-groups")):
        raise MinikafkaError(f"Option [{action}] takes one of these options: [all-groups], [group]")
    connected(arguments, lambda client: work[action](client, arguments))


async def _groups(client: Client, arguments: Arguments) -> list[str]:
    if arguments.has("all-groups"):
        return sorted(one.group for one in await client.groups.list_groups())
    return list(dict.fromkeys(arguments.values("group")))


async def _list(client: Client, arguments: Arguments) -> None:
    wanted = {word.lower() for word in arguments.words_of("state")}
    found = sorted(await client.groups.list_groups())
    if not arguments.has("state"):
        for one in found:
            echo(one.group)
        return
    rows = [(one.group, one.state) for one in found if not wanted or one.state.lower() in wanted]
    width = max(15, *(len(group) for group, _ in rows)) if rows else 15
    for group, state in [("GROUP", "STATE"), *rows]:
        echo(f"{group:<{width}} {state}")


async def _describe(client: Client, arguments: Arguments) -> None:
    described = await client.groups.describe(await _groups(client, arguments))
    for group in described.values():
        if group.state == DEAD:
            _error(f"Consumer group '{group.group}' does not exist.")
            continue
        if arguments.has("state"):
            _show_state(group)
            continue
        _remark(group)
        if arguments.has("members"):
            columns = member_columns(group, verbose=arguments.has("verbose"))
            _show(lines(columns, group.members) if group.members else ())
        else:
            rows = (await read_offsets(client, [group]))[group.group]
            _show(lines(offset_columns(group.group), rows) if rows else ())


def _show(text: Iterable[str]) -> None:
    """Print a table after an empty line, as Kafka does."""
    found = list(text)
    if found:
        echo("", *found)


def _remark(group: GroupDescription) -> None:
    if group.state == EMPTY:
        echo("", f"Consumer group '{group.group}' has no active members.", err=True)
    elif group.state in REBALANCING:
        echo("", f"Warning: Consumer group '{group.group}' is rebalancing.", err=True)


def _show_state(group: GroupDescription) -> None:
    node = group.coordinator
    address = f"{node.host}:{node.port}  ({node.id})"
    width = max(25, len(address))
    head = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    row = (group.group, address, group.assignor or "", group.state, len(group.members))
    echo("", _STATE.format(*head, width=width), _STATE.format(*row, width=width))


def _error(text: str) -> None:
    """Print an error and go on, as Kafka does."""
    echo("", f"Error: {text}")


async def _delete(client: Client, arguments: Arguments) -> None:
    outcomes = await client.groups.delete(await _groups(client, arguments))
    wrong = failed(outcomes)
    if not wrong:
        echo(f"Deletion of requested consumer groups ('{', '.join(outcomes)}') was successful.")
        return
    _error("Deletion of some consumer groups failed:")
    for group, outcome in wrong.items():
        echo(f"* Group '{group}' could not be deleted due to: {_exception(outcome)}")
    if rest := [group for group in outcomes if group not in wrong]:
        echo("", f"These consumer groups were deleted successfully: '{', '.join(rest)}'")
    raise MinikafkaError(f"{len(wrong)} of {len(outcomes)} groups were not deleted")


def _exception(outcome: Outcome) -> str:
    return exception_text(outcome.code, outcome.reason)


async def _delete_offsets(client: Client, arguments: Arguments) -> None:
    group = arguments.required("group")
    scopes = _scopes(arguments)
    partitions = await find_partitions(client, scopes)
    outcomes = await client.groups.delete_offsets(group, partitions)
    if not failed(outcomes):
        topics = ", ".join(dict.fromkeys(tp.topic for tp in outcomes))
        echo(f"Request succeed for deleting offsets with topic {topics} group {group}")
    echo("", f"{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for tp, outcome in sorted(outcomes.items()):
        status = "Successful" if outcome.ok else f"Error: {outcome.reason}"
        echo(f"{tp.topic:<30} {tp.partition:<15} {status:<15}")
    if failed(outcomes):
        raise MinikafkaError("some offsets were not deleted")


def _scopes(arguments: Arguments) -> Sequence[TopicScope]:
    """Return the topics and partitions of `--topic`. Raises MinikafkaError without one."""
    if not arguments.has("topic"):
        raise MinikafkaError('Missing required argument "[topic]"')
    return parse_scopes(None, None, arguments.values("topic"))


async def _reset(client: Client, arguments: Arguments) -> None:
    if not (arguments.has("topic") or arguments.has("all-topics") or arguments.has("from-file")):
        raise MinikafkaError(
            "Option [reset-offsets] takes one of these options: [all-topics], [topic]"
        )
    if arguments.has("dry-run") and arguments.has("execute"):
        raise MinikafkaError("Option [dry-run] can't be used with option [execute]")
    if not (arguments.has("dry-run") or arguments.has("execute") or arguments.has("export")):
        echo("WARN: No action will be performed as the --execute option is missing.", err=True)
    scopes = _scopes(arguments) if arguments.has("topic") else []
    groups = await _groups(client, arguments)
    reset = Reset(client, _scenario(arguments), scopes, groups, _error)
    plan, has_all = await reset.plan()
    if arguments.has("execute"):
        has_all = await apply_plan(client, plan, _error) and has_all
    if arguments.has("export"):
        for line in write_csv(plan, with_group=len(groups) > 1):
            echo(line)
    else:
        _show(lines(PLAN, plan_rows(plan)))
    if not has_all:
        raise MinikafkaError("not all offsets were reset")


def _scenario(arguments: Arguments) -> Scenario:
    """Return the one rule for the new offsets. Raises MinikafkaError."""
    given = [name for name in _SCENARIOS if arguments.has(name)]
    if len(given) != 1:
        names = ", ".join(f"[{name}]" for name in _SCENARIOS)
        raise MinikafkaError(
            f"Option '[reset-offsets]' requires one of the following scenarios: {names}"
        )
    name = given[0]
    text = arguments.value(name)
    if name in ("to-offset", "shift-by"):
        return Scenario(name, arguments.number(name))
    if name == "to-datetime":
        return Scenario(name, parse_datetime(None, None, text))
    if name == "by-duration":
        return Scenario(name, parse_duration(None, None, text))
    return Scenario(name, Path(text) if text is not None else None)
