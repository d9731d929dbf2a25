"""`generate compose`: three brokers and ZooKeeper in containers of one machine."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import click

import minikafka.base.config as configs
import minikafka.tools.cli.generate.stop_time as stop_times
from minikafka.tools.cli.generate.output import output_option, write

BROKERS: Final = (1, 2, 3)
FIRST_PORT: Final = 19_092
_SECRET: Final = "MINIKAFKA_SECRET"  # noqa: S105 - the name of a variable
_FILE: Final = """\
# compose.yaml, made by `minikafka generate compose`: three brokers and ZooKeeper on one machine, without TLS and login.
# Beside it are the output of `minikafka generate dockerfile`, as Dockerfile, and the directory dist/ with the wheel:
#   (umask 077 && echo "{secret}=$(openssl rand -hex 32)" > .env)
#   docker compose up --build --detach --wait
# Clients on this machine connect to {bootstrap}.
name: minikafka

x-server: &server
  image: minikafka:{version}
  build: .
  restart: unless-stopped
  read_only: true
  tmpfs: [/tmp]
  cap_drop: [ALL]
  security_opt: ["no-new-privileges:true"]
  ulimits:
    nofile: 524288
  logging:
    driver: json-file
    options: {{max-size: 100m, max-file: "5"}}

x-broker: &broker
  <<: *server
  stop_grace_period: {stop_s}s
  depends_on:
    zookeeper: {{condition: service_healthy}}

services:
  zookeeper:
    <<: *server
    command: [zookeeper, --data, /var/lib/minikafka/zookeeper, --host, 0.0.0.0, --port, "2181"]
    stop_grace_period: {rest_s}s
    volumes: ["zookeeper:/var/lib/minikafka"]
    healthcheck:
      test: [CMD, python, -c,
        "import socket; s = socket.create_connection(('127.0.0.1', 2181), 5); s.send(b'ruok');
        assert s.recv(4) == b'imok'"]
      interval: 10s
      timeout: 10s
      start_period: 30s
{services}
volumes:
  zookeeper:
{volumes}
configs:
{configs}"""
_SERVICE: Final = """\
  broker-{id}:
    <<: *broker
    ports: ["127.0.0.1:{port}:{port}"]
    volumes: ["broker-{id}:/var/lib/minikafka"]
    configs: [{{source: broker-{id}, target: /etc/minikafka/broker.toml}}]
"""
_CONFIG: Final = """\
  broker-{id}:
    content: |
{lines}
"""
_BROKER: Final = """\
[broker]
broker.id = {id}
zookeeper.connect = "zookeeper:2181"
minikafka.cluster.secret = "{secret}"
minikafka.control.listener = "CONTROLLER://:9093"
log.dirs = "/var/lib/minikafka/broker"
listeners = "INTERNAL://0.0.0.0:9092,EXTERNAL://0.0.0.0:{port}"
advertised.listeners = "INTERNAL://broker-{id}:9092,EXTERNAL://127.0.0.1:{port}"
listener.security.protocol.map = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"
inter.broker.listener.name = "INTERNAL"
default.replication.factor = 3
min.insync.replicas = 2
"""


@click.command()
@output_option
def compose(output: str | None) -> None:
    """Print a Compose file of three brokers and ZooKeeper. `generate dockerfile` makes its image.

    Volumes keep the data. A broker gets the time of a controlled shutdown when it is stopped.
    """
    ports = [port_of(broker_id) for broker_id in BROKERS]
    secret = f"${{{_SECRET}:?write {_SECRET}=... into .env}}"
    text = _FILE.format(
        secret=_SECRET,
        bootstrap=",".join(f"127.0.0.1:{port}" for port in ports),
        version=version("minikafka"),
        stop_s=stop_times.stop_s(configs.BrokerConfig.parse(broker_config(1, "x" * 16))),
        rest_s=stop_times.REST_S,
        services="".join(_SERVICE.format(id=id_, port=port_of(id_)) for id_ in BROKERS),
        volumes="".join(f"  broker-{id_}:\n" for id_ in BROKERS),
        configs="".join(_indented(id_, broker_config(id_, secret)) for id_ in BROKERS),
    )
    write(text, output)


def broker_config(broker_id: int, secret: str) -> str:
    """Return the configuration of a broker in its container."""
    return _BROKER.format(id=broker_id, port=port_of(broker_id), secret=secret)


def port_of(broker_id: int) -> int:
    """Return the port of a broker for clients on this machine."""
    return FIRST_PORT + broker_id - 1


def _indented(broker_id: int, text: str) -> str:
    lines = "\n".join(f"      {line}" for line in text.splitlines())
    return _CONFIG.format(id=broker_id, lines=lines)
