"""Writes: their results, the counters of a Stat, and the order in which ZooKeeper checks for errors."""

from __future__ import annotations

import pytest
from support.zookeeper_state import Connection, World

from minikafka.base.ports import Stat
from minikafka.zk.core import codes
from minikafka.zk.core.acl import ANYONE, READABLE, Acl
from minikafka.zk.core.attempt import Written
from minikafka.zk.core.codes import Refused
from minikafka.zk.core.operations import Create, Delete, Operation, Reconfig, SetAcl, SetData

NO_CREATE: Acl = ((31 - 4, "world", "anyone"),)
NO_DELETE: Acl = ((31 - 8, "world", "anyone"),)
NO_WRITE: Acl = ((31 - 2, "world", "anyone"),)
NO_ADMIN: Acl = ((31 - 16, "world", "anyone"),)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Connection:
    return world.connect()


def create(path: str | None, *, acl: Acl | None = ANYONE, flags: int = 0) -> Create:
    return Create(codes.CREATE, path, b"", acl, flags)


def stat(world: World, path: str) -> Stat:
    return world.state.tree.nodes[path].stat()


def test_new_server_has_the_system_nodes_with_apaches_counters(world: World) -> None:
    assert list(world.state.tree.nodes) == [
        "/",
        "/zookeeper",
        "/zookeeper/quota",
        "/zookeeper/config",
    ]
    assert stat(world, "/").cversion == -1
    assert stat(world, "/zookeeper").cversion == -2
    assert stat(world, "/zookeeper/config").aversion == -1


def test_creation_sets_all_fields_of_the_stat(world: World, client: Connection) -> None:
    written = world.state.write(client, 0, Create(codes.CREATE2, "/a", b"data", ANYONE, 1), 77)
    assert written.stat == Stat(2, 2, 77, 77, 0, 0, 0, client.session_id, 4, 0, 2)


def test_null_and_empty_data_are_different(world: World, client: Connection) -> None:
    world.create(client, "/null", None)
    world.create(client, "/empty", b"")
    assert world.state.data(client, "/null").data is None
    assert world.state.data(client, "/empty").data == b""
    assert world.set(client, "/empty", None).node == world.state.tree.nodes["/empty"]
    assert world.state.data(client, "/empty").data is None


def test_cversion_counts_creations_and_deletions_of_children(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    for name in "bcd":
        world.create(client, f"/a/{name}")
    world.delete(client, "/a/c")
    found = stat(world, "/a")
    assert (found.cversion, found.num_children, found.pzxid) == (4, 2, world.state.zxid)


def test_setting_data_moves_mzxid_and_not_pzxid(world: World, client: Connection) -> None:
    world.create(client, "/a")
    written = world.set(client, "/a", b"xyz")
    assert written.stat == Stat(2, 3, 7, 7, 1, 0, 0, 0, 3, 0, 2)


def test_setting_an_acl_moves_aversion_alone(world: World, client: Connection) -> None:
    world.create(client, "/a")
    before = stat(world, "/a")
    assert world.set_acl(client, "/a", READABLE).stat == before._replace(aversion=1)


def test_every_attempt_to_write_uses_up_a_zxid(world: World, client: Connection) -> None:
    zxid = world.state.zxid
    assert world.refusal(client, Delete("/missing", -1)) == codes.NO_NODE
    assert world.refusal(client, Reconfig()) == codes.RECONFIG_DISABLED
    world.create(client, "/a")
    world.state.fail(client, 0, codes.MARSHALLING_ERROR, 0)
    assert world.state.zxid == zxid + 4
    assert [transaction.zxid for transaction in world.state.journal] == list(range(1, zxid + 5))


def test_reads_use_up_no_zxid(world: World, client: Connection) -> None:
    zxid = world.state.zxid
    world.state.data(client, "/", watch=True)
    with pytest.raises(Refused):
        world.state.exists(client, "/missing", watch=True)
    assert world.state.zxid == zxid


def test_write_without_a_session_uses_up_no_zxid(world: World) -> None:
    zxid = world.state.zxid
    assert world.refusal(Connection(99), create("/a")) == codes.SESSION_EXPIRED
    assert world.state.zxid == zxid


def test_sequence_number_counts_creations_and_not_deletions(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    first = world.create(client, "/a/n-", flags=codes.SEQUENTIAL)
    world.delete(client, first)
    world.create(client, "/a/plain")
    assert first == "/a/n-0000000000"
    assert world.create(client, "/a/n-", flags=codes.SEQUENTIAL) == "/a/n-0000000002"
    assert world.create(client, "/a/", flags=codes.SEQUENTIAL) == "/a/0000000003"


def test_sequence_number_goes_on_below_zero_after_2_to_the_31(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    parent = world.state.tree.nodes["/a"]
    parent.created = 2**31 - 1
    assert world.create(client, "/a/n", flags=codes.SEQUENTIAL) == "/a/n2147483647"
    assert world.create(client, "/a/n", flags=codes.SEQUENTIAL) == "/a/n-2147483648"
    assert (parent.created, parent.stat().cversion) == (1 - 2**31, 0)


def test_cversion_goes_on_below_zero_after_2_to_the_30_creations(
    world: World, client: Connection
) -> None:
    world.create(client, "/a")
    parent = world.state.tree.nodes["/a"]
    parent.created = 2**30
    assert parent.stat().cversion == -(2**31)


@pytest.mark.parametrize(("version", "after"), [(-3, -2), (-2, 0), (2**31 - 1, -(2**31))])
def test_version_never_becomes_the_number_that_means_any(
    world: World, client: Connection, version: int, after: int
) -> None:
    world.create(client, "/a")
    world.state.tree.nodes["/a"].version = version
    world.set(client, "/a", b"", version)
    assert stat(world, "/a").version == after


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (create(None, acl=None, flags=7), codes.BAD_ARGUMENTS),
        (create(None, acl=None, flags=5), codes.UNIMPLEMENTED),
        (create(None, acl=None), codes.MARSHALLING_ERROR),
        (create("no-slash", acl=None), codes.BAD_ARGUMENTS),
        (create("/a\0", acl=None), codes.BAD_ARGUMENTS),
        (create("/missing/.", acl=()), codes.INVALID_ACL),
        (create("/missing/."), codes.NO_NODE),
        (create("/closed/."), codes.NO_AUTH),
        (create("/open/."), codes.BAD_ARGUMENTS),
        (create("/ephemeral/."), codes.BAD_ARGUMENTS),
        (create("/open/"), codes.BAD_ARGUMENTS),
        (create("/open/", flags=2), 0),
        (create("/open"), codes.NODE_EXISTS),
        (create("/ephemeral/child"), codes.NO_CHILDREN_FOR_EPHEMERALS),
        (create("relative/child"), codes.NO_NODE),
        (Delete(None, -1), codes.MARSHALLING_ERROR),
        (Delete("no-slash", -1), codes.BAD_ARGUMENTS),
        (Delete("/open\0", -1), codes.BAD_ARGUMENTS),
        (Delete("/zookeeper/quota", 9), codes.BAD_ARGUMENTS),
        (Delete("/", -1), codes.BAD_ARGUMENTS),
        (Delete("/missing/child", -1), codes.NO_NODE),
        (Delete("/kept/missing", -1), codes.NO_AUTH),
        (Delete("/open/missing", -1), codes.NO_NODE),
        (Delete("/open/./", -1), codes.NO_NODE),
        (Delete("/parent", 9), codes.BAD_VERSION),
        (Delete("/parent", 0), codes.NOT_EMPTY),
        (SetData(None, b"", 9), codes.BAD_ARGUMENTS),
        (SetData("", b"", 9), codes.BAD_ARGUMENTS),
        (SetData("/missing/.", b"", 9), codes.BAD_ARGUMENTS),
        (SetData("/missing", b"", 9), codes.NO_NODE),
        (SetData("/read-only", b"", 9), codes.NO_AUTH),
        (SetData("/open", b"", 9), codes.BAD_VERSION),
        (SetAcl("/missing/.", None, 9), codes.BAD_ARGUMENTS),
        (SetAcl("/missing", None, 9), codes.INVALID_ACL),
        (SetAcl("/missing", ANYONE, 9), codes.NO_NODE),
        (SetAcl("/fixed", ANYONE, 9), codes.NO_AUTH),
        (SetAcl("/open", ANYONE, 9), codes.BAD_VERSION),
    ],
)
def test_write_is_refused_for_the_first_of_its_errors(
    world: World, client: Connection, operation: Operation, code: int
) -> None:
    for path, acl in (
        ("/open", ANYONE),
        ("/parent", ANYONE),
        ("/parent/child", ANYONE),
        ("/closed", NO_CREATE),
        ("/kept", NO_DELETE),
        ("/read-only", NO_WRITE),
        ("/fixed", NO_ADMIN),
    ):
        world.create(client, path, acl=acl)
    world.create(client, "/ephemeral", flags=codes.EPHEMERAL)
    if code:
        assert world.refusal(client, operation) == code
    else:
        assert isinstance(world.write(client, operation), Written)


@pytest.mark.parametrize(
    "name",
    [".", "..", "a//b", "a/", "\x01", "\x7f", "\x9f", "\ue000", "\uf8ff", "\ufff0", "\U00010000"],
)
def test_path_with_bad_syntax_is_refused(world: World, client: Connection, name: str) -> None:
    if "/" not in name:
        assert world.refusal(client, create(f"/{name}")) == codes.BAD_ARGUMENTS
    assert world.refusal(client, SetData(f"/{name}", b"", -1)) == codes.BAD_ARGUMENTS


@pytest.mark.parametrize(
    "name", ["...", ".a", "a.", " ", "\xa0", "\ud7ff", "\uf900", "\uffef", "ä"]
)
def test_unusual_path_is_accepted(world: World, client: Connection, name: str) -> None:
    assert world.create(client, f"/{name}") == f"/{name}"


def test_read_of_a_malformed_path_finds_no_node(world: World, client: Connection) -> None:
    for path in ("/.", "a", "//", "/a/", "/\x01"):
        with pytest.raises(Refused) as refused:
            world.state.data(client, path)
        assert refused.value.code == codes.NO_NODE


def test_empty_path_is_the_root_for_reads_alone(world: World, client: Connection) -> None:
    root = world.state.tree.nodes["/"]
    assert world.state.data(client, "") is world.state.exists(client, "", watch=False) is root
    assert world.refusal(client, SetData("", b"", -1)) == codes.BAD_ARGUMENTS


def test_null_path_is_a_marshalling_error_for_reads(world: World, client: Connection) -> None:
    for read in (world.state.data, world.state.children, world.state.exists):
        with pytest.raises(Refused) as refused:
            read(client, None, watch=True)
        assert refused.value.code == codes.MARSHALLING_ERROR


def test_container_has_no_owner_in_its_stat_and_goes_when_emptied(
    world: World, client: Connection
) -> None:
    world.create(client, "/used", kind=codes.CREATE_CONTAINER)
    world.create(client, "/unused", kind=codes.CREATE_CONTAINER, flags=codes.EPHEMERAL)
    world.create(client, "/used/child")
    world.state.remove_empty_containers(9)
    world.delete(client, "/used/child")
    assert stat(world, "/used").ephemeral_owner == 0
    assert stat(world, "/unused").ephemeral_owner == 0
    zxid = world.state.zxid
    world.state.remove_empty_containers(9)
    assert "/used" not in world.state.tree.nodes
    assert "/unused" in world.state.tree.nodes, "a container that never had children stays"
    assert world.state.zxid == zxid + 1


def test_flag_4_of_a_single_create_makes_a_plain_node(world: World, client: Connection) -> None:
    world.create(client, "/a", flags=codes.CONTAINER_FLAG)
    assert world.state.tree.containers == {}


def test_number_of_nodes_below_a_path(world: World, client: Connection) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        world.create(client, path)
    counts = {
        path: world.state.tree.count_below(path) for path in ("/a", "/ab", "/", "", "/zookeeper")
    }
    assert counts == {"/a": 2, "/ab": 0, "/": 7, "": 8, "/zookeeper": 2}
