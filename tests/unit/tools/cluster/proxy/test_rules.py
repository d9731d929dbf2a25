"""Which faults apply to a direction of a connection, and what they do together."""

from __future__ import annotations

from support.cases import for_each

from minikafka.tools.cluster.proxy.addresses import peer_at, source_of
from minikafka.tools.cluster.proxy.rules import (
    CLIENTS,
    CONTROL,
    CUT,
    DELAY,
    DROP,
    FETCH,
    NO_EFFECT,
    ONE,
    ZOOKEEPER,
    Effect,
    FaultRule,
    Way,
    effect_of,
    problem_of,
)

TO_1 = Way(2, 1, FETCH)
FROM_1 = Way(1, 2, FETCH)

EFFECTS = [
    ([], TO_1, NO_EFFECT),
    ([FaultRule(CUT, 1, 2)], TO_1, Effect(is_held=True, rules=(0,))),
    ([FaultRule(CUT, 2, 1)], TO_1, Effect(is_held=True, rules=(0,))),
    ([FaultRule(CUT, 2, 1, ONE)], TO_1, Effect(is_held=True, rules=(0,))),
    ([FaultRule(CUT, 2, 1, ONE)], FROM_1, NO_EFFECT),
    ([FaultRule(CUT, 1, 3)], TO_1, NO_EFFECT),
    ([FaultRule(CUT, 1, CLIENTS)], TO_1, NO_EFFECT),
    ([FaultRule(CUT, 1, CLIENTS)], Way(CLIENTS, 1, FETCH), Effect(is_held=True, rules=(0,))),
    ([FaultRule(CUT, 1, CLIENTS)], Way(CLIENTS, 1, CONTROL), NO_EFFECT),
    ([FaultRule(CUT, 1, 2, link=CONTROL)], TO_1, NO_EFFECT),
    ([FaultRule(CUT, 1, 2, link=CONTROL)], Way(2, 1, CONTROL), Effect(is_held=True, rules=(0,))),
    (
        [FaultRule(CUT, 1, ZOOKEEPER)],
        Way(ZOOKEEPER, 1, ZOOKEEPER),
        Effect(is_held=True, rules=(0,)),
    ),
    ([FaultRule(CUT, 1, ZOOKEEPER)], Way(ZOOKEEPER, 2, ZOOKEEPER), NO_EFFECT),
    (
        [FaultRule(DELAY, 1, 2, ms=30), FaultRule(DELAY, 2, 1, ONE, ms=5)],
        TO_1,
        Effect(delay_ms=35, rules=(0, 1)),
    ),
    (
        [FaultRule(DELAY, 1, 2, ms=30), FaultRule(DELAY, 2, 1, ONE, ms=5)],
        FROM_1,
        Effect(False, False, 30, (0,)),
    ),
    ([FaultRule(CUT, 1, 2), FaultRule(DROP, 1, 2)], TO_1, Effect(True, True, 0, (0, 1))),
]


@for_each(EFFECTS)
def test_faults_that_apply_to_a_direction_add_up(rules, way, effect):
    assert effect_of(enumerate(rules), way) == effect


PROBLEMS = [
    (FaultRule(CUT, 1, 2), ""),
    (FaultRule(CUT, 1, ZOOKEEPER), ""),
    (FaultRule(CUT, 1, ZOOKEEPER, link=ZOOKEEPER), ""),
    (FaultRule(CUT, 1, 9), "there is no broker 9, the cluster has 1, 2"),
    (FaultRule(CUT, 1, 1), "the two ends of a connection must differ, got 1 twice"),
    (
        FaultRule(CUT, 1, "2"),
        "an end of a connection must be a broker id, clients or zookeeper, got '2'",
    ),
    (
        FaultRule(CUT, 1, True),
        "an end of a connection must be a broker id, clients or zookeeper, got True",
    ),
    (
        FaultRule(CUT, CLIENTS, ZOOKEEPER),
        "clients do not connect to ZooKeeper: name a broker in place of one of them",
    ),
    (FaultRule(CUT, 1, 2, "out"), "direction must be both or one, got 'out'"),
    (
        FaultRule(CUT, 1, 2, link="data"),
        "link must be one of all, control, fetch, zookeeper, got 'data'",
    ),
    (
        FaultRule(CUT, 1, 2, link=ZOOKEEPER),
        "between 1 and 2 there is no link zookeeper, but control and fetch",
    ),
    (
        FaultRule(CUT, 1, CLIENTS, link=CONTROL),
        "between 1 and clients there is no link control, but fetch",
    ),
    (FaultRule(DELAY, 1, 2, ms=0), "ms must be a whole number from 1 to 3600000, got 0"),
    (FaultRule(DELAY, 1, 2, ms=1.5), "ms must be a whole number from 1 to 3600000, got 1.5"),
]


@for_each(PROBLEMS)
def test_fault_that_a_cluster_cannot_have_is_refused_in_one_sentence(rule, problem):
    assert problem_of(rule, (1, 2), has_zookeeper=True) == problem


def test_fault_of_an_external_zookeeper_is_refused():
    assert "runs no ZooKeeper of its own" in problem_of(
        FaultRule(CUT, 1, ZOOKEEPER), (1,), has_zookeeper=False
    )


def test_every_broker_connects_from_an_address_of_its_own():
    addresses = {id_: source_of(id_) for id_ in range(1, 1001)}

    assert len(set(addresses.values())) == 1000
    assert all(peer_at(address) == id_ for id_, address in addresses.items())
    assert peer_at("127.0.0.1") == CLIENTS
