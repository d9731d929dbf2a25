"""The table of the rights that requests need."""

from __future__ import annotations

import re
from pathlib import Path

import minikafka
from minikafka.kafka.wire.versions import NAMES, SERVED
from minikafka.security.acls import SUPPORTED
from minikafka.security.operations import NEEDS, NO_NEEDS, need

BROKER = Path(minikafka.__file__).parent / "broker"


def test_every_served_request_needs_a_right_or_is_listed_as_open():
    served = {NAMES[api] for api in SERVED}
    assert {one.api for one in NEEDS} | NO_NEEDS == served
    assert not {one.api for one in NEEDS} & NO_NEEDS


def test_every_row_of_the_table_is_asked_by_a_handler_and_found_by_its_key():
    text = "".join(path.read_text() for path in BROKER.rglob("*.py"))
    asked = set(re.findall(r'need\(\s*"(\w+)",\s*(?:\w+\.)?(\w+),\s*(?:\w+\.)?(\w+)\s*\)', text))
    by_variable = {  # the handlers of both requests share a function
        (api, "ALTER_CONFIGS", kind)
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
        for kind in ("TOPIC", "CLUSTER")
    }
    table = {(one.api, one.operation.name, one.resource.name) for one in NEEDS}
    assert table - by_variable == asked
    assert len(table) == len(NEEDS)
    assert all(need(one.api, one.operation, one.resource) is one for one in NEEDS)


def test_every_needed_operation_exists_for_its_type_of_resource():
    assert [one for one in NEEDS if one.operation not in SUPPORTED[one.resource]] == []
