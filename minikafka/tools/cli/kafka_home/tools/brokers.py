"""`kafka-broker-api-versions.sh` and `kafka-cluster.sh`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minikafka.base.errors import MinikafkaError
from minikafka.client import Client
from minikafka.client.administration.inspection import ServedApi
from minikafka.client.network import Address
from minikafka.tools.cli.kafka_home.connection import connected
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo


def api_versions(arguments: Arguments) -> None:
    """Print the APIs of each broker, with the versions that it serves. Raises MinikafkaError."""

    async def work(client: Client) -> None:
        for node in sorted((await client.describe_cluster()).brokers.values()):
            address = f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'})"
            try:
                served = await client.inspection.api_versions(Address(node.host, node.port))
            except OSError as error:
                echo(
                    f"{address} -> ERROR: org.apache.kafka.common.errors.DisconnectException: {error}"
                )
                continue
            *apis, last = _apis(served.values())
            echo(f"{address} -> (", *(f"\t{api}," for api in apis), f"\t{last}", ")")

    connected(arguments, work)


def _apis(served: Iterable[ServedApi]) -> Iterator[str]:
    for api in sorted(served):
        if api.is_of_kafka:
            low, high = api.lowest, api.highest
            versions = str(low) if low == high else f"{low} to {high}"
            yield f"{api.name}({api.key}): {versions} [usable: {high}]"


def cluster(arguments: Arguments) -> None:
    """Print the id of the cluster. Raises MinikafkaError."""
    if arguments.rest != ("cluster-id",):
        raise MinikafkaError("the only command is cluster-id: minikafka runs without KRaft")

    async def work(client: Client) -> None:
        echo(f"Cluster ID: {(await client.describe_cluster()).cluster_id}")

    connected(arguments, work)
