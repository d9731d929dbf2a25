"""The authorizer's decisions, compared with a model that reads all ACLs for each question, and in named cases."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.security.acl_cases import (
    HOSTS,
    NAMES,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    PRINCIPALS,
    TYPES,
    Case,
    Question,
    answer,
    random_case,
)

from minikafka.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    ResourcePattern,
)
from minikafka.security.authorizer import IMPLIED_BY, NO_ALLOW, OPEN, SUPER_USER, Authorizer

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
TOPIC = AclResourceType.TOPIC
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE, HOST = "User:alice", "10.0.0.1"


def acl(
    name: str = "orders",
    pattern: PatternType = LITERAL,
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    principal: str = ALICE,
    host: str = "*",
) -> AclBinding:
    entry = AclEntry(principal, host, operation, permission)
    return AclBinding(ResourcePattern(TOPIC, name, pattern), entry)


def authorizer(*bindings: AclBinding, super_users: tuple[str, ...] = ()) -> Authorizer:
    return Case(super_users, False, bindings, ()).authorizer()


def may(
    made: Authorizer,
    operation: AclOperation = READ,
    name: str = "orders",
    *,
    principal: str = ALICE,
    host: str = HOST,
) -> bool:
    return made.allows(principal, host, operation, TOPIC, name)


def modelled(case: Case, question: Question) -> bool:
    """Return the answer of a model without any index."""
    principal, host, operation, kind, name = question
    if principal in case.super_users:
        return True
    if name is None:
        return modelled_any(case, question)

    def matches(pattern: ResourcePattern) -> bool:
        if pattern.type is not kind:
            return False
        if pattern.pattern is PREFIXED:
            return name.startswith(pattern.name)
        return pattern.name in (name, "*")

    found = [one.entry for one in case.bindings if matches(one.pattern)]
    if not found:
        return case.allow_if_no_acl

    def has(permission: AclPermission, operations: tuple[AclOperation, ...]) -> bool:
        return any(
            entry.permission is permission
            and entry.principal in (principal, "User:*")
            and entry.host in (host, "*")
            and entry.operation in (*operations, ALL)
            for entry in found
        )

    return not has(DENY, (operation,)) and has(ALLOW, IMPLIED_BY.get(operation, (operation,)))


def modelled_any(case: Case, question: Question) -> bool:
    """Return the answer of a model without any index, for a question about any resource of a type."""
    principal, host, operation, kind, _ = question
    having = [
        (entry.permission, pattern)
        for pattern, entry in case.bindings
        if pattern.type is kind
        and entry.principal in (principal, "User:*")
        and entry.host in (host, "*")
        and entry.operation in (operation, ALL)
    ]
    denied = [pattern for permission, pattern in having if permission is DENY]
    every = ResourcePattern(kind, "*", LITERAL)
    if every in denied or case.allow_if_no_acl:
        return every not in denied

    def is_outweighed(allowed: ResourcePattern) -> bool:
        return allowed in denied or any(
            one.pattern is PREFIXED and allowed.name.startswith(one.name) for one in denied
        )

    allowing = [pattern for permission, pattern in having if permission is ALLOW]
    return any(one == every or not is_outweighed(one) for one in allowing)


bindings = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern, st.sampled_from(TYPES), st.sampled_from(NAMES), st.sampled_from(PATTERNS)
    ),
    st.builds(
        AclEntry,
        st.sampled_from((*PRINCIPALS, "User:*")),
        st.sampled_from((*HOSTS, "*")),
        st.sampled_from((*OPERATIONS, ALL)),
        st.sampled_from(PERMISSIONS),
    ),
)
questions = st.builds(
    Question,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from((*NAMES, None)),
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(((), ("User:root",))),
    st.booleans(),
    st.lists(bindings, max_size=12),
    st.lists(questions, min_size=1, max_size=20),
)
def test_authorizer_decides_as_a_model_without_an_index(
    super_users: tuple[str, ...],
    allow_if_no_acl: bool,
    acls: list[AclBinding],
    asked: list[Question],
) -> None:
    case = Case(super_users, allow_if_no_acl, tuple(acls), tuple(asked))
    made = case.authorizer()
    assert [answer(made, one) for one in asked] == [modelled(case, one) for one in asked]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_authorizer_whose_acls_were_replaced_decides_as_a_new_one(first: int, second: int) -> None:
    former, latter = random_case(Random(first), 0), random_case(Random(second), 20)
    changed = Case(latter.super_users, latter.allow_if_no_acl, former.bindings, ()).authorizer()
    for kind in PATTERNS:
        patterns = {one.pattern for one in latter.bindings if one.pattern.pattern is kind}
        changed.replace(
            kind,
            {
                pattern: frozenset(one.entry for one in latter.bindings if one.pattern == pattern)
                for pattern in patterns
            },
        )
    new = latter.authorizer()
    assert [answer(changed, one) for one in latter.questions] == [
        answer(new, one) for one in latter.questions
    ]
    assert set(changed.patterns()) == set(new.patterns())


def test_names_of_principals_are_compared_in_their_case() -> None:
    made = authorizer(acl())
    assert may(made)
    assert not may(made, principal="User:Alice")


@pytest.mark.parametrize(("principal", "host"), [("User:*", "*"), (ALICE, HOST)])
def test_right_to_any_resource_may_come_from_everybody_or_one_host(
    principal: str, host: str
) -> None:
    made = authorizer(acl(principal=principal, host=host))
    assert made.allows_any(ALICE, HOST, READ, TOPIC)
    assert made.allows_any("User:bob", "10.0.0.2", READ, TOPIC) == (host == "*")


def test_super_user_has_every_right_to_any_resource() -> None:
    made = authorizer(acl(permission=DENY, name="*"), super_users=(ALICE,))
    assert made.allows_any(ALICE, HOST, READ, TOPIC)
    assert not made.allows_any("User:bob", HOST, READ, TOPIC)


def test_principal_without_an_acl_may_do_nothing():
    made = authorizer(acl(principal="User:bob"))
    assert not may(made)
    assert made.rule(ALICE, HOST, READ, TOPIC, "orders") == NO_ALLOW
    assert may(made, principal="User:bob")


def test_deny_outweighs_allow_from_any_pattern():
    for pattern in (acl("*", permission=DENY), acl("ord", PREFIXED, permission=DENY)):
        assert not may(authorizer(acl(), pattern))
        assert may(authorizer(acl(), pattern._replace(entry=acl().entry)))


def test_deny_of_everybody_holds_for_the_principal_too():
    assert not may(authorizer(acl(), acl(permission=DENY, principal="User:*")))


def test_prefixed_acl_matches_longer_names_and_the_prefix_itself():
    made = authorizer(acl("ord", PREFIXED))
    assert [may(made, name=name) for name in ("ord", "orders", "or", "xord")] == [
        True,
        True,
        False,
        False,
    ]


def test_literal_acl_matches_its_name_alone_unless_it_is_the_wildcard():
    assert not may(authorizer(acl("order")))
    assert may(authorizer(acl("*")), name="anything")
    assert not may(authorizer(acl("*", PREFIXED)), name="anything")


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, ALL])
def test_allowed_operation_implies_describe(operation: AclOperation):
    assert may(authorizer(acl(operation=operation)), DESCRIBE)


def test_denied_operation_implies_no_denial_of_describe():
    made = authorizer(acl(operation=DESCRIBE), acl(operation=READ, permission=DENY))
    assert may(made, DESCRIBE)
    assert not may(made, READ)


def test_altering_configs_implies_describing_them_and_not_the_reverse():
    alter, describe = AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS
    assert may(authorizer(acl(operation=alter)), describe)
    assert not may(authorizer(acl(operation=describe)), alter)
    assert not may(authorizer(acl(operation=READ)), describe)


def test_acl_of_a_host_holds_for_that_host_alone():
    made = authorizer(acl(host=HOST))
    assert may(made)
    assert not may(made, host="10.0.0.2")


def test_super_user_may_do_what_an_acl_denies():
    made = authorizer(acl(permission=DENY, principal="User:*"), super_users=(ALICE,))
    assert made.rule(ALICE, HOST, READ, TOPIC, "orders") == SUPER_USER


def test_resource_without_any_acl_is_open_only_if_the_key_says_so():
    made = Authorizer(allow_if_no_acl=True)
    assert made.rule(ALICE, HOST, READ, TOPIC, "orders") == OPEN
    made.update(acl(principal="User:bob").pattern, frozenset({acl(principal="User:bob").entry}))
    assert not may(made)
    assert may(made, name="other")


def test_verdict_names_the_acl_that_decides():
    denial = acl(permission=DENY)
    made = authorizer(acl(), denial)
    assert made.rule(ALICE, HOST, READ, TOPIC, "orders").binding == denial
    text = str(made.rule(ALICE, HOST, READ, TOPIC, "orders"))
    assert text == "DENY User:alice Read on Topic:LITERAL:orders from host *"


def test_version_changes_with_every_change_of_acls_and_with_nothing_else():
    made = authorizer(acl())
    before = made.version
    made.update(acl().pattern, frozenset({acl().entry}))
    assert made.version == before
    made.update(acl().pattern, frozenset())
    assert made.version != before
    assert not may(made)


def test_any_resource_is_denied_by_a_dominant_prefix_and_not_by_a_longer_one():
    allowed = acl("orders", PREFIXED)
    shorter, longer = (
        acl("ord", PREFIXED, permission=DENY),
        acl("orders-x", PREFIXED, permission=DENY),
    )
    assert not authorizer(allowed, shorter).allows_any(ALICE, HOST, READ, TOPIC)
    assert authorizer(allowed, longer).allows_any(ALICE, HOST, READ, TOPIC)


def test_question_about_any_resource_implies_no_operation():
    made = authorizer(acl(operation=WRITE))
    assert made.allows_any(ALICE, HOST, WRITE, TOPIC)
    assert not made.allows_any(ALICE, HOST, DESCRIBE, TOPIC)


def test_filter_yields_the_acls_that_it_selects():
    made = authorizer(acl(), acl("ord", PREFIXED), acl("*"), acl("other"))
    pattern = PatternFilter(TOPIC, "orders", PatternType.MATCH)
    selected = made.bindings(AclFilter(pattern, None, None, AclOperation.ANY, AclPermission.ANY))
    assert {one.pattern.name for one in selected} == {"orders", "ord", "*"}
