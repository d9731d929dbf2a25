"""Why a principal may or may not do something."""

from __future__ import annotations

import pytest

from minikafka.security.acls import (
    SUPPORTED,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from minikafka.tools.explain.rights import AccessRules, RightAnswer, RightsQuestion, explain_rights

TOPIC = AclResourceType.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALICE = RightsQuestion("User:alice", TOPIC, "orders")


def acl(
    permission: AclPermission,
    principal: str,
    operation: AclOperation,
    name: str = "orders",
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> AclBinding:
    return AclBinding(
        ResourcePattern(TOPIC, name, pattern), AclEntry(principal, host, operation, permission)
    )


ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def only(
    access: AccessRules, operation: AclOperation, question: RightsQuestion = ALICE
) -> RightAnswer:
    [answer] = explain_rights(access, question, [operation])
    return answer


def test_the_acl_that_allows_is_named_also_if_it_implies_the_operation() -> None:
    rule = acl(ALLOW, "User:alice", READ)
    for operation in (READ, DESCRIBE):
        answer = only(AccessRules(True, acls=[rule]), operation)
        assert (answer.is_allowed, answer.acl, answer.remedy) == (True, rule, "")
        assert answer.reason == "ALLOW User:alice Read on Topic:LITERAL:orders from host *"


def test_without_an_acl_the_command_that_grants_it_is_named() -> None:
    answer = only(AccessRules(True, acls=[acl(ALLOW, "User:bob", WRITE)]), WRITE)
    assert (answer.is_allowed, answer.acl) == (False, None)
    assert answer.reason == "no ACL allows it"
    assert answer.remedy == (
        "minikafka acls add --allow-principal User:alice --operation Write --topic orders"
    )


def test_the_acl_that_denies_is_named_with_the_command_that_removes_it() -> None:
    rule = acl(DENY, "User:*", WRITE, "ord", PatternType.PREFIXED)
    answer = only(AccessRules(True, acls=[acl(ALLOW, "User:alice", WRITE), rule]), WRITE)
    assert (answer.is_allowed, answer.acl) == (False, rule)
    assert answer.remedy == (
        "minikafka acls remove --deny-principal 'User:*' --operation Write --topic ord "
        "--resource-pattern-type prefixed"
    )


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        (AccessRules(False), "the brokers have no authorizer (authorizer.class.name)"),
        (AccessRules(True, frozenset({"User:alice"})), "the principal is a super user"),
        (AccessRules(True, allows_without_acl=True), "allow.everyone.if.no.acl.found is true"),
    ],
)
def test_everything_is_allowed_without_acls(access: AccessRules, reason: str) -> None:
    answers = explain_rights(access, ALICE)
    assert [one.operation for one in answers] == sorted(SUPPORTED[TOPIC])
    assert all(one.is_allowed and reason in one.reason for one in answers)


def test_addresses_with_another_verdict_are_named() -> None:
    rules = [
        acl(ALLOW, "User:alice", READ),
        acl(DENY, "User:alice", READ, host="10.0.0.1"),
        acl(ALLOW, "User:alice", READ, host="10.0.0.2"),
        acl(DENY, "User:bob", READ, host="10.0.0.3"),
    ]
    answer = only(AccessRules(True, acls=rules), READ)
    assert answer.is_allowed
    assert {host: one.is_allowed for host, one in answer.elsewhere.items()} == {"10.0.0.1": False}
    there = only(AccessRules(True, acls=rules), READ, ALICE._replace(host="10.0.0.1"))
    assert (there.is_allowed, there.elsewhere) == (False, {})
    assert there.remedy.endswith("--operation Read --deny-host 10.0.0.1 --topic orders")
    assert there.as_json()["acl"] == str(rules[1])


def test_commands_for_the_cluster_and_for_odd_names_can_be_pasted_into_a_shell() -> None:
    cluster = RightsQuestion("User:a b", AclResourceType.CLUSTER, "kafka-cluster")
    assert only(AccessRules(True), AclOperation.ALTER, cluster).remedy == (
        "minikafka acls add --allow-principal 'User:a b' --operation Alter --cluster"
    )
    group = RightsQuestion("User:alice", AclResourceType.GROUP, "g$(id)")
    assert only(AccessRules(True), READ, group).remedy.endswith("--group 'g$(id)'")
    assert (cluster.resource, group.resource) == ("the cluster", "group g$(id)")
