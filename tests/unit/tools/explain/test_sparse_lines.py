"""The history of a partition or of a group is told from lines that have only the fields of their form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.cases import for_each
from support.ledger.sparse_lines import sparse

from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.forms import FORMS, misfit
from minikafka.broker.ledger.lifecycle import lifecycle
from minikafka.broker.ledger.reader import merged
from minikafka.broker.ledger.record import GROUP, REQUEST
from minikafka.tools.explain.groups.history import history
from minikafka.tools.explain.past import Past
from minikafka.tools.explain.summary import Story
from minikafka.tools.explain.trace import chains, describe, names_number, only_about, refusal_of

TP = TopicPartition("t", 0)


def every_line() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a line of each kind and variant with only the fields of its form, and then with each optional field."""
    for kind, form in FORMS.items():
        for variant, more in {"other": {}, **form.variants}.items():
            given = {form.by: variant} if form.by else {}
            needed = {**form.fields, **more}
            yield f"{kind} {variant}", sparse(kind, needed, **given)
            for name in (one for one in form.optional if one not in needed):
                wanted = {**needed, name: form.optional[name]}
                yield f"{kind} {variant} {name}", sparse(kind, wanted, **given)


LINES = dict(every_line())
OF_GROUPS = [name for name, line in LINES.items() if line["kind"] == GROUP]


@for_each(LINES)
def test_partition_is_explained_by_a_line_with_only_the_fields_of_its_form(
    line: dict[str, Any],
) -> None:
    assert misfit(line["kind"], line) == ""
    started = sparse("event", {"event": str, "brokers": dict}, event="BrokersChanged", cause="1-0")
    lines = merged([[started, line, {**line, "n": 2}]])
    past = Past(lines, TP)

    found = chains(lines, TP)
    Story(lines, TP).summarize(found)
    assert all(describe(only_about(one, TP)) for one in lines)
    assert all(map(str, lifecycle(lines, "t", 0)))
    names_number(line, TP), refusal_of(line, TP)
    past.replicas(), past.leadership(), past.replica_states(), past.assignment()
    past.topic_deleted(), past.led_since(), past.is_marked(), past.reassignment_requested()
    past.last_step("x"), past.last_refusal(), past.joined_isr(1), past.left_isr(1)
    past.broker_lost(1), past.directory_failed(1), past.oldest_unanswered(1)
    Story(lines, TP).endings(2_000, ())


@pytest.mark.parametrize("name", OF_GROUPS)
def test_group_is_explained_by_a_line_with_only_the_fields_of_its_form(name: str) -> None:
    line = LINES[name]
    for entry in history([line, {**line, "n": 2}]):
        assert entry.summary()
        assert entry.as_json()["lines"]


@for_each(LINES)
def test_line_without_a_field_of_its_form_does_not_fit(line: dict[str, Any]) -> None:
    kind = FORMS[line["kind"]]
    for field in {**kind.fields, **kind.variants.get(line.get(kind.by, ""), {})}:
        without = {one: value for one, value in line.items() if one != field}
        assert misfit(line["kind"], without) == field
        assert misfit(line["kind"], {**line, field: object()}) == field


def test_nested_objects_are_checked_up_to_the_given_number() -> None:
    whole = sparse(REQUEST, {**FORMS[REQUEST].fields, **FORMS[REQUEST].variants["StopReplica"]})
    whole["request"] = "StopReplica"
    whole["states"] = [*whole["states"], {"delete": True}]

    assert misfit(REQUEST, whole) == "states"
    assert misfit(REQUEST, whole, checked=1) == ""
