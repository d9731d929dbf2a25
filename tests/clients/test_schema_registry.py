"""The examples of docs/schema-registry.md, with Karapace and confluent-kafka's serializers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schema-registry.md"


@pytest.mark.skipif(
    shutil.which("karapace") is None, reason="the command karapace is not installed"
)
@pytest.mark.parametrize(("title", "module"), [("Avro", "avro"), ("Protobuf", "protobuf")])
def test_example_writes_and_reads_a_value_through_the_registry(title: str, module: str) -> None:
    pytest.importorskip(
        f"confluent_kafka.schema_registry.{module}",
        reason=f"confluent-kafka[{module},schemaregistry] is not installed",
        exc_type=ImportError,
    )
    match = re.search(
        rf"^## {title}$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    assert match is not None
    exec(compile(match[1], str(PAGE), "exec"), {})
