"""The forms of ledger lines agree with the page that describes the lines to users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.broker.ledger.forms import EVERY, FORMS

PAGE = (Path(__file__).parents[4] / "docs" / "ledger.md").read_text()


def test_page_lists_exactly_the_kinds_of_lines() -> None:
    table = PAGE.split("## Kinds")[1].split("The facts about a consumer group")[0]

    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == FORMS.keys()


@pytest.mark.parametrize("kind", FORMS)
def test_page_names_every_field_of_a_kind(kind: str) -> None:
    [row] = re.findall(rf"^\| `{kind}` \| .*$", PAGE, re.MULTILINE)
    form = FORMS[kind]

    assert [name for name in (*form.fields, *form.optional) if f"`{name}`" not in row] == []


def test_page_names_the_fields_of_every_line() -> None:
    assert [name for name in EVERY if f"`{name}`" not in PAGE] == []
