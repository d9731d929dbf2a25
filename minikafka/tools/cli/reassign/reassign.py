"""`reassign`: move partitions to other brokers; verify, list, cancel or propose moves (K1–K3).

Exit code 0: every named partition has its target replicas (with `--no-wait`: its move has started). Exit code 1:
a move was rejected or has not completed, or a partition has other replicas. Exit code 130: Ctrl-C, after printing
which moves have completed. Ctrl-C does not cancel a reassignment, because the controller continues it.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final, Protocol

import click

import minikafka.client as clients
import minikafka.tools.cli.reassign.empty as empty
import minikafka.tools.cli.reassign.jobs as jobs
import minikafka.tools.cli.reassign.moves as moves
import minikafka.tools.cluster.zookeeper.access as accesses
from minikafka.tools.cli.arguments import completion, placement
from minikafka.tools.cli.arguments.find_cluster import (
    bootstrap_servers,
    cluster_options,
    zookeeper_servers,
)
from minikafka.tools.cli.arguments.options import EXISTING_FILE, connection_options
from minikafka.tools.cli.arguments.partition_arguments import Named, partitions_argument
from minikafka.tools.cli.arguments.zookeeper_config import zookeeper_access, zookeeper_config_option
from minikafka.tools.cli.execution.running import fail_unless, run, run_with_client
from minikafka.tools.cli.execution.waiting import Blocked
from minikafka.tools.cli.terminal.echo import json_option

_ACTIONS: Final = ("verify", "list", "cancel", "generate")
_VIA: Final = "--via-zookeeper"


class _Reassign(click.Command):
    """The command `reassign`. A TOPIC-PARTITION after `--via-zookeeper` is not the value of that option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. A word after `--via-zookeeper` is the option's value only if the word has a colon."""
        explicit = [
            f"{_VIA}=" if arg == _VIA and ":" not in after else arg
            for arg, after in zip_longest(args, args[1:], fillvalue="")
        ]
        return super().parse_args(ctx, explicit)


@click.command(cls=_Reassign)
@partitions_argument
@click.option(
    "--replicas",
    multiple=True,
    metavar="3,4,5",
    help="The partition's new brokers, the preferred leader first; once per partition.",
)
@click.option(
    "--file",
    type=EXISTING_FILE,
    metavar="PLAN",
    help="JSON file in the format of Kafka's tool, or of --generate --json.",
)
@click.option("--verify", is_flag=True, help="Show whether the moves have completed.")
@click.option("--list", "list_", is_flag=True, help="Show all moves in progress.")
@click.option("--cancel", is_flag=True, help="Cancel moves: return to the original replicas.")
@click.option(
    "--generate",
    is_flag=True,
    help="Propose a plan that spreads --topics over --brokers with few moves.",
)
@click.option(
    "--topics",
    "spread",
    metavar="A,B",
    help="With --generate: topics to spread (default: all, also internal ones).",
    shell_complete=completion.topic_lists,
)
@click.option(
    "--brokers",
    metavar="1,2,3",
    help="With --generate: brokers to use (default: all that are alive).",
)
@click.option(
    "--throttle",
    "bytes_per_second",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Replication limit per broker in bytes/s; removed when all moves have completed.",
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    "log_dirs_throttle",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Limit per broker of moves between log directories in bytes/s; removed as --throttle is.",
)
@click.option(
    "--from-dir",
    metavar="BROKER:PATH",
    help="With --generate: move all replicas of this log directory to the others of its broker.",
)
@click.option("--no-wait", is_flag=True, help="Return as soon as the moves are accepted.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Fail if the command has not ended after this time; started moves continue.",
)
@click.option(
    _VIA,
    "zookeeper",
    is_flag=False,
    flag_value="",
    metavar="[HOST:PORT]",
    help="Submit moves through /admin/reassign_partitions of this ZooKeeper (default: that of the cluster in "
    "--data). Ctrl-C and --timeout take back the moves that the controller has not begun.",
)
@zookeeper_config_option
@connection_options
@json_option
def reassign(
    named: Named,
    replicas: tuple[str, ...],
    file: str | None,
    verify: bool,
    list_: bool,
    cancel: bool,
    generate: bool,
    spread: str | None,
    brokers: str | None,
    bytes_per_second: int | None,
    log_dirs_throttle: int | None,
    from_dir: str | None,
    no_wait: bool,
    timeout: float | None,
    zookeeper: str | None,
    zookeeper_config: str | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Move each TOPIC-PARTITION to its --replicas and wait until the moves have completed.

    Ctrl-C prints which moves have completed; the other moves continue.
    """
    options = jobs.ReassignOptions(
        named,
        replicas,
        file,
        spread,
        brokers,
        bytes_per_second,
        not no_wait,
        timeout,
        cluster_options(bootstrap, data),
        log_dirs_throttle,
    )
    action = _action(verify, list_, cancel, generate)
    if zookeeper is not None:
        if action or bytes_per_second or spread or brokers or log_dirs_throttle:
            raise click.UsageError(
                "--via-zookeeper cannot be combined with --verify, --list, --cancel, --generate, --topics, "
                "--brokers or a throttle"
            )
        if options.directories():
            raise click.UsageError("--via-zookeeper cannot move replicas to the log_dirs of a plan")
        connect = zookeeper_servers(zookeeper, bootstrap, data)
        _move_by_node(options, connect, zookeeper_access(zookeeper_config, zookeeper, data))
        return
    job = _job_for_directory(action, options, from_dir) if from_dir else _job(action, options)

    async def work(client: clients.Client) -> bool:
        return await job.do(client.admin)

    # `MoveByController` and `Cancel` apply the time limit themselves, because they then report the state of the moves.
    limit = timeout if action and action != "cancel" else None
    fail_unless(run_with_client(work, bootstrap_servers(bootstrap, data), limit=limit))


def _action(*flags: bool) -> str | None:
    """Return the action whose flag is given; None for a move. Raises UsageError if two flags are given."""
    chosen = [name for name, is_given in zip(_ACTIONS, flags, strict=True) if is_given]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} cannot be combined")
    return chosen[0] if chosen else None


def _move_by_node(
    options: jobs.ReassignOptions, connect: str, access: accesses.ZooKeeperAccess
) -> None:
    plan = options.plan()
    # `Move` applies the time limit itself, because it takes the request back when the time is over.
    work = moves.move_by_node(options, plan, connect, access)
    fail_unless(run(work, limit=float("inf"), reason=Blocked().reason(plan)))


class _Job(Protocol):
    """One job of `reassign`: move, verify, list, cancel or propose."""

    async def do(self, admin: clients.Admin) -> bool:
        """Do the job; return True on success."""


def _job_for_directory(action: str | None, options: jobs.ReassignOptions, place: str) -> _Job:
    """Return the job of --from-dir. Raises UsageError."""
    if action != "generate" or options.spread or options.brokers:
        raise click.UsageError("--from-dir can only be used with --generate, without --topics")
    broker, colon, path = place.partition(":")
    if not colon or not broker.isdecimal() or not path.startswith("/"):
        raise click.UsageError(f"--from-dir {place!r}: write BROKER:PATH, as in 1:/var/lib/disk1")
    return empty.Empty(int(broker), path.rstrip("/") or "/")


def _job(action: str | None, options: jobs.ReassignOptions) -> _Job:
    """Return the job for `action`; None moves partitions. Raises UsageError if the options do not fit the action."""
    if action != "generate" and (options.spread or options.brokers):
        raise click.UsageError("--topics and --brokers can only be used with --generate")
    if action and (options.throttle or options.log_dirs_throttle):
        raise click.UsageError(f"a throttle cannot be combined with --{action}")
    if action == "verify":
        return jobs.VerifyJob(
            options,
            options.plan() if options.replicas or options.file else options.named_partitions(),
        )
    if action == "list":
        return jobs.ListMoves()
    if action == "cancel":
        return jobs.Cancel(options, options.named_partitions())
    if action == "generate":
        names = None
        if options.spread:
            names = list(dict.fromkeys(name.strip() for name in options.spread.split(",")))
        brokers = placement.broker_list(options.brokers) if options.brokers else None
        return jobs.Propose(names, brokers)
    return moves.MoveByController(options, options.plan())
