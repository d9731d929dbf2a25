"""`generate systemd`: a unit for `minikafka broker` or `minikafka zookeeper`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

import minikafka.base.config as configs
import minikafka.broker.ledger.writer as ledgers
import minikafka.tools.cli.foreground.broker_file as broker_files
import minikafka.tools.cli.generate.stop_time as stop_times
from minikafka.base.errors import ConfigError
from minikafka.tools.cli.foreground.exit_codes import NO_RESTART, SECOND_SIGNAL
from minikafka.tools.cli.generate.output import output_option, write
from minikafka.tools.cli.terminal.echo import echo

BROKER: Final = "broker"
ZOOKEEPER: Final = "zookeeper"
CONFIG: Final = "/etc/minikafka/server.properties"
STATE: Final = "/var/lib/minikafka"
_LOG_DIR: Final = f"{STATE}/broker"
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - nothing is written there
_HOMES: Final = ("/home", "/root", "/run/user")
_ZOOKEEPER_PORT: Final = 2181

_UNIT: Final = """\
# /etc/systemd/system/minikafka-{server}.service, made by `minikafka generate systemd {server}`. Before the first start:
#   useradd --system --user-group --home-dir {state} --shell /usr/sbin/nologin {user}
{prepare}
#   systemctl daemon-reload && systemctl enable --now minikafka-{server}
[Unit]
Description=minikafka {server}
Wants=network-online.target
After=network-online.target{after}

[Service]
Type=notify
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=5
# {no_restart}: the configuration or the data are wrong. {second_signal}: a second signal ended the process.
RestartPreventExitStatus={no_restart} {second_signal}
# After a crash, the logs are recovered first.
TimeoutStartSec=infinity
# {stop_reason}
TimeoutStopSec={stop_s}
KillMode=mixed
LimitNOFILE=524288
UMask=0027
{writable}

CapabilityBoundingSet=
LockPersonality=yes
MemoryDenyWriteExecute=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp={tmp}
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome={home}
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged

[Install]
WantedBy=multi-user.target
"""


class Service(NamedTuple):
    """What differs between the units of servers. `reads`: files that the user must be able to read."""

    server: str
    arguments: Sequence[str]
    directories: Sequence[str]
    reads: Sequence[str]
    stop_s: int
    stop_reason: str


@click.command()
@click.argument("server", type=click.Choice((BROKER, ZOOKEEPER)), default=BROKER)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help=f"--config of the server. For a broker, its directories and its time to stop are read.  [default: {CONFIG}]",
)
@click.option("--data", metavar="DIR", help=f"Of ZooKeeper.  [default: {STATE}/zookeeper]")
@click.option("--host", metavar="ADDRESS", help="Of ZooKeeper.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65_535), help="Of ZooKeeper.  [default: 2181]")
@click.option(
    "--user", default="minikafka", show_default=True, help="User and group of the process."
)
@output_option
def systemd(
    server: str,
    config: str | None,
    data: str | None,
    host: str | None,
    port: int | None,
    user: str,
    output: str | None,
) -> None:
    """Print a unit for `minikafka broker`, or with `zookeeper` for `minikafka zookeeper`.

    Run it with the `minikafka` that the service will use. The service is ready when its server serves. A stop is a
    controlled shutdown. A server with a wrong configuration is not restarted.
    """
    if server == BROKER:
        if data or host or port:
            raise click.UsageError("--data, --host and --port are options of ZooKeeper's unit")
        service = _broker(config or CONFIG)
    else:
        service = _zookeeper(config, data or f"{STATE}/zookeeper", host, port)
    write(unit(service, user), output)


def _broker(config: str) -> Service:
    """Return the service of a broker. Raises ConfigError if the configuration cannot be used."""
    path = Path(config).absolute()
    if path.exists():
        found = broker_files.load(path).config
    else:
        echo(f"{path} does not exist: the unit is for defaults, and log.dirs={_LOG_DIR}", err=True)
        found = configs.BrokerConfig.from_mapping({"broker.id": 0, "log.dirs": _LOG_DIR})
    for directory in found.log_dirs:
        if not os.path.isabs(directory):
            raise ConfigError(f"{path}: log.dirs: {directory} must be absolute for a service")
    handover = f"Up to {stop_times.handover_s(found)} s to hand over leaderships"
    reason = f"{handover} (controlled.shutdown.*), {stop_times.REST_S} s for the rest."
    return Service(
        BROKER,
        ["broker", "--config", str(path)],
        [*found.log_dirs, ledgers.directory_of(found.log_dirs[0])],
        [str(path), *_secret_beside(path)],
        stop_times.stop_s(found),
        reason,
    )


def _secret_beside(path: Path) -> list[str]:
    """Return the file with the secret that Kafka's own file has beside it."""
    return [str(path.with_name(broker_files.OWN_FILE))] if path.suffix == ".properties" else []


def _zookeeper(config: str | None, data: str, host: str | None, port: int | None) -> Service:
    directory = str(Path(data).absolute())
    address = ["--host", host or "127.0.0.1", "--port", str(port or _ZOOKEEPER_PORT)]
    keys = [str(Path(config).absolute())] if config else []
    more = ["--config", *keys] if keys else []
    return Service(
        ZOOKEEPER,
        ["zookeeper", "--data", directory, *address, *more],
        [directory],
        keys,
        stop_times.REST_S,
        "The log is flushed and closed.",
    )


def unit(service: Service, user: str) -> str:
    """Return the text of a unit."""
    program = _program()
    read = (sys.executable, os.path.realpath(sys.executable), *program, *service.reads)
    used = (*read, *service.directories)
    return _UNIT.format(
        server=service.server,
        state=STATE,
        user=user,
        prepare="\n".join(_prepare(service, user)),
        after=" minikafka-zookeeper.service" if service.server == BROKER else "",
        command=" ".join(map(_quoted, (*program, *service.arguments))),
        no_restart=NO_RESTART,
        second_signal=SECOND_SIGNAL,
        stop_reason=service.stop_reason,
        stop_s=service.stop_s,
        writable=_writable(service.directories),
        home="read-only" if any(_is_below(path, _HOMES) for path in read) else "yes",
        tmp="no" if any(_is_below(path, _TEMPORARY) for path in used) else "yes",
    )


def _program() -> list[str]:
    """Return the start of the command line: the script `minikafka` of this installation, else its interpreter."""
    script = Path(sys.executable).with_name("minikafka")
    return [str(script)] if script.exists() else [sys.executable, "-m", "minikafka"]


def _prepare(service: Service, user: str) -> Iterable[str]:
    """Yield the commands that make the directories and let the user read the files."""
    for directory in service.directories:
        yield f"#   install -d -o {user} -g {user} -m 0750 {shlex.quote(directory)}"
    for file in service.reads:
        yield f"#   chgrp {user} {shlex.quote(file)} && chmod 0640 {shlex.quote(file)}"


def _writable(directories: Iterable[str]) -> str:
    return f"ReadWritePaths={' '.join(_quoted(path) for path in directories)}"


def _is_below(path: str, directories: Iterable[str]) -> bool:
    return any(path.startswith(f"{directory}/") for directory in directories)


def _quoted(word: str) -> str:
    """Return a word for systemd, in which % begins a specifier and $ a variable."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if shlex.quote(word) == word else f'"{escaped}"'
