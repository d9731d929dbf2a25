"""Ids and ports of the brokers of a new, a larger and a smaller cluster."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import ConfigError
from minikafka.base.zookeeper import EMBEDDED, EXTERNAL, MANAGED
from minikafka.runtime.clock import SystemRng
from minikafka.tools.cluster.directory import HOST, BrokerRecord, ClusterError, ClusterRecord
from minikafka.tools.cluster.launch.plan import LaunchPlan, LaunchRequest, Running, plan
from minikafka.tools.cluster.ports import is_free

RNG = SystemRng()


def planned(
    before: ClusterRecord | None = None,
    brokers: int | None = None,
    port: int | None = None,
    config: ClusterConfig | None = None,
) -> ClusterRecord:
    return plan(
        before, LaunchRequest(brokers, port, config or ClusterConfig(), None, None), RNG
    ).record


def planned_from(
    text: str, before: ClusterRecord | None, running: tuple[int, ...] = ()
) -> tuple[ClusterRecord, tuple[str, ...]]:
    """Return the plan for a cluster.toml.

    `before`: the cluster's current plan, None for a new cluster. `running`: ids of the running brokers.
    """
    config = ClusterConfig.parse(text)
    request = LaunchRequest(None, None, config, config.zookeeper, None)
    return plan(before, request, RNG, Running(running, bool(running)))


def metrics_ports(record: ClusterRecord) -> list[int]:
    return [broker.control_port for broker in record.brokers]


def ports(record: ClusterRecord) -> list[int]:
    return [broker.port for broker in record.brokers]


def mode_of(asked: str | None, text: str = "", before: ClusterRecord | None = None) -> str:
    """Return the planned coordination mode. `asked`: the argument of LocalCluster. `text`: the table [broker]."""
    config = ClusterConfig.parse(f"[broker]\n{text}")
    request = LaunchRequest(1, None, config, None, None, coordination=asked)
    return plan(before, request, RNG).record.coordination


def free_row(length: int) -> int:
    """Return the first of `length` consecutive free ports."""
    return next(p for p in count(15_100, 7) if all(map(is_free, range(p, p + length))))


def test_new_brokers_get_the_ports_after_those_of_the_cluster() -> None:
    first = free_row(5)
    three = planned(brokers=3, port=first)
    five = planned(three, brokers=5)
    assert ports(five) == list(range(first, first + 5))
    assert five.brokers[:3] == three.brokers


def test_new_broker_gets_another_port_if_the_next_one_is_in_use() -> None:
    first = free_row(4)
    three = planned(brokers=3, port=first)
    with socket.create_server((HOST, first + 3)):
        four = planned(three, brokers=4)
    assert ports(four)[3] not in range(first, first + 4)
    assert len({p for b in four.brokers for p in (b.port, b.control_port)}) == 8


def test_new_broker_gets_a_free_port_if_ports_are_not_consecutive() -> None:
    before = ClusterRecord(
        (BrokerRecord(1, 20_000, 20_001), BrokerRecord(2, 30_000, 30_001)), f"{HOST}:30002"
    )
    [*_, added] = ports(planned(before, brokers=3))
    assert added not in (9094, 20_002, 30_001, 30_002)
    assert is_free(added)


def test_new_broker_gets_another_free_port_after_port_65535() -> None:
    before = ClusterRecord((BrokerRecord(1, 65_535, 20_001),), f"{HOST}:20002")
    assert ports(planned(before, brokers=2))[1] < 65_535


def test_returning_broker_has_its_former_ports() -> None:
    three = planned(brokers=3, port=0)
    two = planned(three, brokers=2)
    assert (len(two.brokers), two.retired) == (2, three.brokers[2:])
    one = planned(two, brokers=1)
    assert planned(planned(one), brokers=3).brokers == three.brokers


def test_new_first_port_also_moves_retired_brokers() -> None:
    two = planned(planned(brokers=3, port=11_000), brokers=2)
    moved = planned(planned(two, port=11_500), brokers=3)
    assert ports(moved) == [11_500, 11_501, 11_502]


@pytest.mark.parametrize(("first", "brokers"), [(65_535, 1), (65_533, 3)])
def test_port_65535_can_be_used(first: int, brokers: int) -> None:
    assert ports(planned(brokers=brokers, port=first))[-1] == 65_535


def test_error_about_a_port_out_of_range_names_the_option_or_key() -> None:
    with pytest.raises(
        ClusterError, match=r"^port must be at most 65534 with 2 brokers, got 65535"
    ):
        planned(brokers=2, port=65_535)
    with pytest.raises(ConfigError, match=r"^cluster\.port must be at most 65533 with 3 brokers"):
        planned(config=ClusterConfig(port=65_534))
    assert ports(planned(brokers=2, config=ClusterConfig(port=65_534))) == [65_534, 65_535]


def test_first_port_0_moves_stopped_brokers_to_new_free_ports() -> None:
    first = free_row(3)
    three = planned(brokers=3, port=first)
    with socket.create_server((HOST, first)):
        moved = planned(three, port=0)
    assert all(map(is_free, ports(moved)))
    assert not set(ports(moved)) & set(ports(three))
    assert len(moved.brokers) == 3
    assert moved.zookeeper != three.zookeeper


def test_first_port_0_does_not_change_the_ports_of_running_brokers() -> None:
    three = planned(brokers=3, port=free_row(3))
    request = LaunchRequest(None, 0, ClusterConfig(), None, None)
    again = plan(three, request, RNG, Running((1, 3), anything=True)).record
    assert again.brokers[0] == three.brokers[0]
    assert again.brokers[2] == three.brokers[2]
    assert again.brokers[1] != three.brokers[1]
    assert again.zookeeper == three.zookeeper


def test_cluster_file_replaces_recorded_values_only_after_it_was_edited() -> None:
    two, _ = planned_from("[cluster]\nbrokers = 2\nport = 11000", None)
    assert planned_from("[cluster]\nbrokers = 2\nport = 11000", two) == (two, ())
    grown = planned(two, brokers=4, config=ClusterConfig.parse("[cluster]\nbrokers = 2"))
    assert len(planned_from("[cluster]\nbrokers = 2", grown)[0].brokers) == 4
    edited, postponed = planned_from("[cluster]\nbrokers = 3\nport = 11500", grown)
    assert (ports(edited), postponed) == ([11_500, 11_501, 11_502], ())
    assert planned_from("[cluster]\nbrokers = 3\nport = 11500", edited) == (edited, ())


def test_cluster_file_edit_that_needs_stopped_brokers_is_postponed_until_they_stop() -> None:
    three, _ = planned_from("[cluster]\nbrokers = 3\nport = 11000", None)
    text = "[cluster]\nbrokers = 2\nport = 11500\n[zookeeper]\nconnect = 'h:2181'"
    kept, postponed = planned_from(text, three, running=(1, 2, 3))
    assert kept == three
    assert postponed == (
        "cluster.brokers = 2: takes effect after minikafka stop 3 and minikafka up",
        "cluster.port = 11500: takes effect after minikafka down and minikafka up",
        f"zookeeper.connect = h:2181: the cluster uses {three.zookeeper} (embedded) "
        "until minikafka down and minikafka up",
    )
    down, postponed = planned_from(text, kept)
    assert (ports(down), down.zookeeper, postponed) == ([11_500, 11_501], "h:2181", ())


def test_edited_port_that_running_brokers_already_use_is_not_called_postponed() -> None:
    three, _ = planned_from("[cluster]\nport = 11000", None)
    moved = planned(three, port=11_500)
    assert planned_from("[cluster]\nport = 11500", moved, running=(1, 2, 3))[1] == ()
    assert planned_from("[cluster]\nport = 0", moved, running=(1, 2, 3))[1] == ()


def test_raised_broker_count_in_the_cluster_file_adds_brokers_to_a_running_cluster() -> None:
    two, _ = planned_from("[cluster]\nbrokers = 2\nport = 0", None)
    four, postponed = planned_from("[cluster]\nbrokers = 4\nport = 0", two, running=(1, 2))
    assert (four.brokers[:2], len(four.brokers), postponed) == (two.brokers, 4, ())


def test_cluster_file_named_by_the_user_replaces_recorded_values_even_if_unchanged() -> None:
    config = ClusterConfig.parse("[cluster]\nbrokers = 2\nport = 11000")
    two = planned(config=config)
    four = planned(two, brokers=4, port=11_500, config=config)
    assert ports(planned(four, config=config)) == ports(four)
    assert ports(planned(four, config=replace(config, was_named=True))) == [11_000, 11_001]


def with_metrics_port(first: int, before: ClusterRecord | None = None) -> ClusterRecord:
    request = LaunchRequest(None, None, ClusterConfig(), None, None, metrics_port=first)
    return plan(before, request, RNG).record


@pytest.mark.key("cluster.metrics.port")
def test_metrics_ports_of_the_brokers_are_consecutive_and_stay() -> None:
    first = free_row(4)
    text = f"[cluster]\nport = 0\nmetrics.port = {first}"
    three, _ = planned_from(text, None)
    assert metrics_ports(three) == [first, first + 1, first + 2]
    again, _ = planned_from(text, three)
    assert again == three
    four = planned(three, brokers=4)
    assert metrics_ports(four) == list(range(first, first + 4))
    moved = planned(three, port=0, config=ClusterConfig.parse(text))
    assert metrics_ports(moved) == metrics_ports(three)
    assert not {*ports(moved)} & {*ports(three)}


def test_metrics_ports_of_running_brokers_change_after_a_restart() -> None:
    first = free_row(3)
    before = planned(port=0)
    text = f"[cluster]\nmetrics.port = {first}"
    running, postponed = planned_from(text, before, running=(1, 2, 3))
    assert metrics_ports(running) == metrics_ports(before)
    assert postponed == (
        f"cluster.metrics.port = {first}: takes effect after minikafka down and minikafka up",
    )
    stopped, postponed = planned_from(text, running)
    assert metrics_ports(stopped) == [first, first + 1, first + 2]
    assert postponed == ()
    assert ports(stopped) == ports(before)
    free = with_metrics_port(0, stopped)
    assert not {*metrics_ports(free)} & {*metrics_ports(stopped)}
    assert ports(free) == ports(before)


@pytest.mark.parametrize("distance", [-2, 0, 2])
def test_port_for_clients_and_metrics_is_refused(distance: int) -> None:
    first = free_row(6)
    config = ClusterConfig(port=first + 2, metrics_port=first + 2 + distance)
    with pytest.raises(ClusterError, match="cannot be used for the metrics of broker"):
        planned(config=config)
    kept = with_metrics_port(first)
    with pytest.raises(ClusterError, match=rf"^port {first} cannot .* clients of broker 1: choose"):
        planned(kept, port=first)


def test_error_about_a_metrics_port_out_of_range_names_the_option_or_key() -> None:
    with pytest.raises(ConfigError, match=r"^cluster\.metrics\.port must be at most 65533 with 3"):
        planned(config=ClusterConfig(metrics_port=65_534))
    with pytest.raises(ClusterError, match=r"^metrics_port must be at most 65533 with 3 brokers"):
        with_metrics_port(65_534)


@pytest.mark.key("minikafka.coordination")
def test_cluster_keeps_the_coordination_mode_of_its_first_start() -> None:
    in_file = 'minikafka.coordination = "leaders"'
    assert mode_of(None) == mode_of("controller") == "controller"
    assert mode_of("leaders") == mode_of(None, in_file) == mode_of("leaders", in_file) == "leaders"
    leaders = replace(planned(brokers=1), coordination="leaders")
    assert mode_of(None, before=leaders) == mode_of("leaders", before=leaders) == "leaders"


def test_other_coordination_mode_is_refused_with_both_names() -> None:
    in_file = 'minikafka.coordination = "leaders"'
    controller = planned(brokers=1)
    for asked, text in (("leaders", ""), (None, in_file)):
        with pytest.raises(ClusterError, match="has the coordination mode controller, not leaders"):
            mode_of(asked, text, controller)
    with pytest.raises(ClusterError, match="has the coordination mode leaders, not controller"):
        mode_of("controller", "", replace(controller, coordination="leaders"))
    with pytest.raises(ClusterError, match=r"= leaders, but controller was requested"):
        mode_of("controller", in_file)
    with pytest.raises(ConfigError, match="must be one of controller, leaders, got 'zk'"):
        mode_of("zk")
    with pytest.raises(ConfigError, match=r"set it in \[broker\]"):
        ClusterConfig.parse(f"[broker.1]\n{in_file}")


def with_zookeeper(
    wanted: str | None, before: ClusterRecord | None = None, running: tuple[int, ...] = ()
) -> LaunchPlan:
    request = LaunchRequest(1, None, ClusterConfig(), wanted, None)
    return plan(before, request, RNG, Running(running, bool(running)))


def test_new_cluster_runs_embedded_zookeeper_unless_another_one_is_requested() -> None:
    assert with_zookeeper(None).record.zookeeper_kind == EMBEDDED
    assert with_zookeeper("managed").record.zookeeper_kind == MANAGED
    external = with_zookeeper("h:1/c").record
    assert (external.zookeeper, external.zookeeper_kind) == ("h:1/c", EXTERNAL)


@pytest.mark.parametrize("wanted", ["embedded", "managed", "h:1/c"])
def test_cluster_keeps_its_zookeeper_until_another_one_is_requested(wanted: str) -> None:
    before = with_zookeeper(wanted).record
    assert with_zookeeper(None, before) == (before, ())
    assert with_zookeeper(None, before, running=(1,)) == (before, ())
    assert with_zookeeper(wanted, before, running=(1,)) == (before, ())


@pytest.mark.parametrize(("kind", "other"), [("embedded", "managed"), ("managed", "embedded")])
def test_other_server_takes_over_address_and_data_while_no_process_runs(
    kind: str, other: str
) -> None:
    before = with_zookeeper(kind).record
    kept, [line] = with_zookeeper(other, before, running=(1,))
    assert kept == before
    uses = f"the cluster uses {before.zookeeper} ({kind}) until minikafka down and minikafka up"
    assert line == f"zookeeper.connect = {other}: {uses}"
    changed = with_zookeeper(other, before)
    assert changed == (replace(before, zookeeper_kind=other), ())


def test_cluster_can_leave_an_external_zookeeper_only_for_a_requested_one() -> None:
    before = with_zookeeper("h:1").record
    changed = with_zookeeper("embedded", before).record
    assert (changed.zookeeper_kind, changed.zookeeper == "h:1") == (EMBEDDED, False)
    moved = with_zookeeper("h:2", before).record
    assert (moved.zookeeper_kind, moved.zookeeper) == (EXTERNAL, "h:2")
    assert with_zookeeper("h:2", before, running=(1,)).record == before


def test_plan_refuses_an_unknown_zookeeper() -> None:
    with pytest.raises(ConfigError, match=r"'nothing': write embedded, managed or HOST:PORT"):
        with_zookeeper("nothing")


def ports_of(listener: str, record: ClusterRecord) -> list[int | None]:
    """Return the port of a listener of each broker, None for a broker that has no such listener."""
    return [broker.ports.get(listener) for broker in record.brokers]


def with_listeners(
    listeners: dict[str, int], before: ClusterRecord | None = None, port: int | None = None
) -> ClusterRecord:
    """Return the plan for the argument `listeners` of LocalCluster."""
    request = LaunchRequest(None, port, ClusterConfig(port=0), None, None, listeners=listeners)
    return plan(before, request, RNG).record


def test_ports_of_a_listener_are_consecutive_and_stay() -> None:
    first = free_row(8)
    text = f"[cluster]\nport = {first}\n[listeners]\nSASL_SSL = {first + 4}"
    three, _ = planned_from(text, None)
    assert (ports(three)[0], ports_of("SASL_SSL", three)) == (
        first,
        [first + 4, first + 5, first + 6],
    )
    assert planned_from(text, three) == (three, ())
    assert planned(three).brokers == three.brokers
    four = planned(three, brokers=4)
    assert four.brokers[:3] == three.brokers
    assert ports_of("SASL_SSL", four)[3] == first + 7
    two = planned(four, brokers=2)
    assert planned(two, brokers=4).brokers == four.brokers


def test_cluster_file_with_listeners_has_plaintext_only_if_it_sets_its_port() -> None:
    both, _ = planned_from("[cluster]\nport = 11000\n[listeners]\nssl = 11010\nX = 11020", None)
    assert both.listener_names == ("PLAINTEXT", "SSL", "X")
    assert both.bootstrap == "127.0.0.1:11000,127.0.0.1:11001,127.0.0.1:11002"
    secured, _ = planned_from("[listeners]\nSSL = 11010\nX = 11020", None)
    assert secured.listener_names == ("SSL", "X")
    assert secured.bootstrap == "127.0.0.1:11010,127.0.0.1:11011,127.0.0.1:11012"
    assert planned_from("", None)[0].listener_names == ("PLAINTEXT",)


def test_argument_with_listeners_has_plaintext_only_with_the_argument_port() -> None:
    secured = with_listeners({"SSL": 0})
    assert secured.listener_names == ("SSL",)
    assert all(map(is_free, ports_of("SSL", secured)))  # type: ignore[arg-type]
    assert with_listeners({"SSL": 0}, port=0).listener_names == ("PLAINTEXT", "SSL")
    assert with_listeners({}, secured).listener_names == ("PLAINTEXT",)
    assert planned(secured).brokers == secured.brokers


def test_port_of_plaintext_is_refused_for_a_cluster_without_it() -> None:
    secured, _ = planned_from("[listeners]\nSSL = 11010", None)
    with pytest.raises(ClusterError, match=r"which the cluster does not have: set cluster\.port"):
        planned(secured, port=0)


def test_listener_that_a_file_adds_gets_its_ports_while_brokers_run() -> None:
    before, _ = planned_from("[cluster]\nport = 11000", None)
    text = "[cluster]\nport = 11000\n[listeners]\nSSL = 11010"
    after, postponed = planned_from(text, before, running=(1, 2, 3))
    assert (ports_of("SSL", after), postponed) == ([11_010, 11_011, 11_012], ())
    assert ports(after) == ports(before)


def test_listener_that_a_file_moves_or_removes_keeps_its_ports_while_brokers_run() -> None:
    before, _ = planned_from("[cluster]\nport = 11000\n[listeners]\nSSL = 11010", None)
    moved = "[listeners]\nSSL = 11020"
    kept, postponed = planned_from(moved, before, running=(1,))
    assert kept.brokers == before.brokers
    assert postponed == (
        "the listener PLAINTEXT is kept until minikafka down and minikafka up",
        "listeners.SSL = 11020: takes effect after minikafka down and minikafka up",
    )
    after, postponed = planned_from(moved, kept)
    assert (after.listener_names, postponed) == (("SSL",), ())
    assert ports_of("SSL", after) == [11_020, 11_021, 11_022]
    removed, postponed = planned_from("[cluster]\nport = 11000", kept)
    assert (removed.listener_names, postponed) == (("PLAINTEXT",), ())


def test_two_listeners_with_one_port_are_refused() -> None:
    with pytest.raises(
        ClusterError,
        match=r"^port 11002 cannot be used for the listener SSL of broker 1 and for the clients of broker 3: "
        r"choose another listeners\.SSL or cluster\.port",
    ):
        planned_from("[cluster]\nport = 11000\n[listeners]\nSSL = 11002", None)
    with pytest.raises(ClusterError, match="for the metrics of broker 1 and for the listener SSL"):
        planned_from("[cluster]\nmetrics.port = 11010\n[listeners]\nSSL = 11010", None)


def test_error_about_the_port_of_a_listener_out_of_range_names_the_key_or_argument() -> None:
    with pytest.raises(ConfigError, match=r"^listeners\.SSL must be at most 65533 with 3 brokers"):
        planned_from("[listeners]\nSSL = 65534", None)
    with pytest.raises(ClusterError, match=r"^listeners\['SSL'\] must be at most 65533 with 3"):
        with_listeners({"SSL": 65_534})


def test_free_ports_for_plaintext_move_the_other_listeners_too() -> None:
    first = free_row(6)
    text = f"[cluster]\nport = {first + 3}\n[listeners]\nSSL = {first}"
    before, _ = planned_from(text, None)
    with ExitStack() as servers:
        for port in range(first, first + 6):
            servers.enter_context(socket.create_server((HOST, port)))
        moved = planned(before, port=0)
    assert moved.listener_names == ("PLAINTEXT", "SSL")
    assert not {*ports(moved), *ports_of("SSL", moved)} & {*ports(before), *ports_of("SSL", before)}


def secure_plan(
    text: str = "", before: ClusterRecord | None = None, *, is_secure: bool = True, **request: Any
) -> ClusterRecord:
    """Return the plan of a secure cluster for the text of a configuration file."""
    config = ClusterConfig.parse(text)
    wanted = LaunchRequest(
        request.pop("brokers", None),
        request.pop("port", None),
        config,
        config.zookeeper,
        None,
        is_secure=is_secure,
        **request,
    )
    return plan(before, wanted, RNG).record


def test_secure_cluster_has_one_listener_on_the_ports_of_the_cluster() -> None:
    first = free_row(3)
    record = secure_plan(f"[cluster]\nport = {first}")
    assert record.listener_names == ("SASL_SSL",)
    assert ports_of("SASL_SSL", record) == [first, first + 1, first + 2]
    assert secure_plan("", record, is_secure=False).brokers == record.brokers
    moved = secure_plan("", record, port=first + 100, is_secure=False)
    assert ports_of("SASL_SSL", moved)[0] == first + 100
    assert moved.is_secure


def test_what_a_secure_cluster_cannot_have_is_refused() -> None:
    with pytest.raises(ClusterError, match="was started without --secure and stays") as caught:
        secure_plan(before=planned(brokers=1))
    assert caught.value.hint.startswith("--data OTHER_DIR")
    with pytest.raises(ConfigError, match=r"\[listeners\] cannot be set in a secure cluster"):
        secure_plan("[listeners]\nSSL = 0")
    with pytest.raises(ConfigError, match=r"\[listeners\] cannot be set in a secure cluster"):
        secure_plan(listeners={"SSL": 0})
    for wanted in ("managed", "h:2181"):
        with pytest.raises(ClusterError, match=f"must be embedded in .*, got {wanted}"):
            secure_plan(f'[zookeeper]\nconnect = "{wanted}"')
    with pytest.raises(ClusterError, match=r"choose another cluster\.metrics\.port or cluster\.p"):
        secure_plan("[cluster]\nport = 20_000\nmetrics.port = 20_000")


def test_each_port_of_a_cluster_with_faults_keeps_the_port_behind_it() -> None:
    request = LaunchRequest(2, None, ClusterConfig(), None, None, has_faults=True)

    record = plan(None, request, RNG).record
    larger = plan(record, request._replace(brokers=3), RNG).record

    assert record.proxy is not None
    assert larger.proxy is not None
    advertised = {port for broker in record.brokers for port in broker.ports.values()}
    assert record.proxy.ports.keys() == advertised | {record.zookeeper_port}
    assert len({*record.proxy.ports, *record.proxy.ports.values()}) == 10
    assert larger.proxy.ports.items() > record.proxy.ports.items()
    assert len({*larger.proxy.ports, *larger.proxy.ports.values()}) == 14


def test_cluster_without_faults_has_no_proxy_after_one_with_faults() -> None:
    request = LaunchRequest(1, None, ClusterConfig(), None, None, has_faults=True)
    record = plan(None, request, RNG).record

    without = plan(record, request._replace(has_faults=False), RNG).record

    assert without.proxy is None
    assert ports(without) == ports(record)


def test_zookeeper_of_another_machine_is_refused_with_faults() -> None:
    request = LaunchRequest(1, None, ClusterConfig(), "zk.example:2181/a", None, has_faults=True)

    with pytest.raises(ClusterError, match="does not reach ZooKeeper at zk"):
        plan(None, request, RNG)
    near = plan(None, request._replace(zookeeper="127.0.0.1:2181/a"), RNG).record

    assert near.proxy is not None
    assert 2181 not in near.proxy.ports
