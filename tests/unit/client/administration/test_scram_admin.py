"""Users with SCRAM credentials through the client, against a cluster."""

from __future__ import annotations

from minikafka.base.errors import ErrorCode
from minikafka.client.administration.results import Outcome
from minikafka.client.administration.scram_admin import (
    OldPassword,
    ScramInfo,
    ScramUser,
    new_password,
)
from minikafka.security import scram
from minikafka.simulation.cluster import MemoryCluster

SHA_256, SHA_512 = scram.MECHANISMS
OK = Outcome(ErrorCode.NONE)
SALT = bytes(range(26))


async def test_users_exist_with_their_mechanisms_until_they_are_deleted() -> None:
    async with MemoryCluster(2) as cluster, cluster.client() as client:
        written = [
            new_password("alice", SHA_512, "secret", 8192, SALT),
            new_password("alice", SHA_256, "secret", 4096, SALT),
            new_password("bob", SHA_256, "other", 4096, SALT),
        ]
        assert await client.users.alter(written) == {"alice": OK, "bob": OK}
        alice = ScramUser(OK, (ScramInfo("SCRAM-SHA-256", 4096), ScramInfo("SCRAM-SHA-512", 8192)))
        assert await client.users.describe() == {
            "alice": alice,
            "bob": ScramUser(OK, (ScramInfo("SCRAM-SHA-256", 4096),)),
        }
        deleted = [OldPassword("alice", SHA_256), OldPassword("nobody", SHA_256)]
        outcomes = await client.users.alter(deleted=deleted)
        assert outcomes["alice"] == OK
        assert outcomes["nobody"].code is ErrorCode.RESOURCE_NOT_FOUND
        left = await client.users.describe(["alice", "nobody"])
        assert left["alice"].credentials == (ScramInfo("SCRAM-SHA-512", 8192),)
        assert left["nobody"].outcome.code is ErrorCode.RESOURCE_NOT_FOUND


def test_credential_of_a_password_is_the_one_of_scram_and_does_not_show_it() -> None:
    made = new_password("alice", SHA_512, "secret", 4096, SALT)
    expected = scram.new_credential(SHA_512, "secret", 4096, SALT)
    assert scram.credential_of(SHA_512, made.salt, made.salted, made.iterations) == expected
    assert repr(made) == "NewPassword('alice', SCRAM-SHA-512)"
