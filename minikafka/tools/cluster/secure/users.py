"""The users of a secure cluster in ZooKeeper: their credentials, and the rights of the first one.

They are written before a broker starts, because brokers log in to each other with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from minikafka.base.ports import Clock, Rng, ZooKeeper
from minikafka.security import scram
from minikafka.security.acls import (
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.security.sasl_client import Login
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.secure.files import ADMIN, BROKER, FIRST_USER, SecurityFiles
from minikafka.zookeeper.nodes import acls, configs, layout
from minikafka.zookeeper.nodes.faults import Faults

_SALT_BYTES: Final = 26
_RESOURCES: Final = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.TRANSACTIONAL_ID,
)
"""The first user may do everything with these."""


async def write_users(
    directory: ClusterDirectory, record: ClusterRecord, clock: Clock, rng: Rng, *, is_new: bool
) -> None:
    """Write the credentials of the administrator and of the brokers, if ZooKeeper does not have them.

    `is_new`: no broker of the cluster has ever started. Then the first user is written too. Raises ClusterError and
    CoordinationError.
    """
    from minikafka.tools.cluster.zookeeper.session import cluster_session  # imports aiozk

    files = SecurityFiles(directory)
    names = (BROKER, ADMIN, *([FIRST_USER] if is_new else []))
    async with cluster_session(directory, record, clock, rng) as zookeeper:
        await zookeeper.ensure(layout.USER_CONFIGS)
        await _write_credentials(zookeeper, map(files.login, names), rng)
        if is_new:
            await _allow_first_user(zookeeper)


async def _write_credentials(zookeeper: ZooKeeper, logins: Iterable[Login], rng: Rng) -> None:
    for login in logins:
        entity = configs.user_entity(login.user)
        [node] = await zookeeper.get_many([configs.path_of(entity)])
        settings = configs.decode(entity, node, Faults()) or {}
        if login.mechanism not in settings:
            mechanism = scram.BY_NAME[login.mechanism]
            salt = rng.bytes(_SALT_BYTES)
            made = scram.new_credential(mechanism, login.password, scram.MIN_ITERATIONS, salt)
            settings[login.mechanism] = scram.encode_credential(made)
            version = None if node is None else node.stat.version
            await zookeeper.multi([configs.write(entity, settings, version)])


async def _allow_first_user(zookeeper: ZooKeeper) -> None:
    entry = AclEntry(f"User:{FIRST_USER}", WILDCARD, AclOperation.ALL, AclPermission.ALLOW)
    for kind in _RESOURCES:
        pattern = ResourcePattern(kind, WILDCARD, PatternType.LITERAL)
        path = acls.path_of(pattern)
        await zookeeper.ensure(path.rpartition("/")[0])
        if await zookeeper.exists(path) is None:
            await zookeeper.multi([acls.write(pattern, frozenset({entry}), None)])
