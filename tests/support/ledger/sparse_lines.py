"""Ledger lines with only the fields of their form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.broker.ledger.forms import FORMS, Form

COMMON = {"time": 1_000, "broker": 1, "n": 1, "cause": "1-1"}


def value_of(name: str, wanted: Any) -> Any:
    """Return a value that fits a field of a form. Partitions are those of the topic t."""
    if isinstance(wanted, Mapping):
        return {one: value_of(one, form) for one, form in wanted.items()}
    if isinstance(wanted, list):
        return [value_of(name, wanted[0])]
    known = {"partitions": {"t": [0]}, "topic": "t", "partition": 0, "brokers": {"1": 7}}
    if name in known:
        return known[name]
    if name == "path":
        return "/brokers/topics/t"
    examples = ((bool, True), (int, 1), (str, "x"), (dict, {}), (list, []), (type(None), None))
    return next(example for kind, example in examples if isinstance(example, wanted))


def sparse(kind: str, form: Form, **given: Any) -> dict[str, Any]:
    fields = {name: value_of(name, wanted) for name, wanted in form.items()}
    return {**COMMON, "kind": kind, **fields, **given}


def completed(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line with the fields of its form that it lacks."""
    form = FORMS[line["kind"]]
    more = form.variants.get(line.get(form.by, ""), {})
    return {**sparse(line["kind"], {**form.fields, **more}), **line}


def fields(kind: str, **given: Any) -> dict[str, Any]:
    """Return the fields of a line of this kind, without those of every line."""
    whole = completed({"kind": kind, **given})
    return {name: value for name, value in whole.items() if name not in {*COMMON, "kind"}}
