"""Malformed names and data of ZooKeeper nodes. Some differ little from the names and data that brokers write."""

from __future__ import annotations

import json
import random

from minikafka.zookeeper.nodes import layout

IDS = ["²", "٣", "01", "+1", "-1", " 1", "1_000", "2147483648", "9" * 5_000, "x", "☃"]
NAMES = [
    "\ud800",
    "\udc00t",
    "..",
    ".",
    "a/b",
    "",
    "t\0",
    "a b",
    "²",
    "x" * 250,
    "../../controller",
]


def rows(*rows: object) -> bytes:
    return json.dumps({"version": 1, "partitions": rows}).encode()


def garbage(chance: random.Random) -> bytes:
    """Return random malformed node data; some differ little from well-formed data."""
    name, number = chance.choice(NAMES), chance.choice([-1, 2**31, 1.5, "0", None, True, 10**400])
    return chance.choice(
        [
            b"",
            b"\xff\xfe\0",
            b"[" * 5_000,
            b'{"version":NaN}',
            b'{"brokerid":1,"brokerid":2}',
            b'{"partitions":{"0":[1],"0":[2]},"version":3}',
            json.dumps({"partitions": {chance.choice(IDS): [1]}}).encode(),
            json.dumps({"partitions": {"0": [number]}, "topic_id": name}).encode(),
            json.dumps({"leader": number, "leader_epoch": 0, "isr": [number]}).encode(),
            json.dumps({"version": 1, "config": {name: number}}).encode(),
            json.dumps({"version": 2, "entity_path": f"topics/{name}"}).encode(),
            json.dumps({"version": 1, "broker": number, "event": 1}).encode(),
            rows({"topic": name, "partition": 0, "replicas": [1]}),
            rows({"topic": "good", "partition": number, "replicas": [1]}),
            rows({"topic": "good", "partition": 7, "replicas": [number]}),
            rows(7, None, []),
        ]
    )


def places(chance: random.Random) -> str:
    """Return the path of a random node that the controller reads and that an external tool could have written."""
    name = chance.choice([name for name in [*IDS, "t"] if name and "/" not in name])
    number = chance.randrange(5)
    return chance.choice(
        [
            f"{layout.BROKER_IDS}/{name}",
            f"{layout.BROKER_IDS}/{number + 10}",
            f"{layout.TOPICS}/{name}",
            f"{layout.TOPICS}/bad{number}",
            f"{layout.TOPICS}/bad{number}/partitions/0/state",
            f"{layout.DELETE_TOPICS}/{name}",
            f"{layout.CONFIG_CHANGE_PREFIX}{number:010d}",
            f"{layout.ISR_CHANGE_PREFIX}{number:010d}",
            f"{layout.ISR_CHANGES}/{name}",
            f"{layout.LOG_DIR_EVENT_PREFIX}{number:010d}",
            f"{layout.TOPIC_CONFIGS}/bad{number}",
            layout.REASSIGN_PARTITIONS,
            layout.PREFERRED_ELECTION,
        ]
    )
