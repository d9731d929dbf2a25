"""Records without their keys or values, compared with the same columns of the complete records."""

from __future__ import annotations

import pytest
from support.kafka.encoders import CODECS, Sample, by_aiokafka, raw_batch

from minikafka.base.errors import CorruptBatch
from minikafka.spark.records.batches import sections
from minikafka.spark.records.decode import decode, schema, without

LARGE = [
    Sample(1_700_000_000_000, b"key", bytes(3_000)),
    Sample(1_600_000_000_000, None, b"\x00\x02" * 70_000, [("h", b"\xff" * 200), ("null", None)]),
    Sample(1_700_000_000_009, b"k" * 9_000, None),
    Sample(1_700_000_000_001, b"", b"", [("", b"")]),
]
SMALL = [Sample(1_700_000_000_000 + index, b"k", b"v" * index) for index in range(50)]


@pytest.mark.parametrize("samples", [LARGE, SMALL])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("key", [False, True])
@pytest.mark.parametrize("value", [False, True])
def test_other_columns_do_not_change_when_keys_or_values_are_left_out(samples, codec, key, value):
    data = memoryview(by_aiokafka(samples, codec=CODECS[codec]))
    whole = list(sections(data, 0, 100, None))
    complete = decode(whole, "lines", 3, 1, 100, with_headers=True)
    reduced = [without(section, key=not key, value=not value) for section in whole]
    found = decode(reduced, "lines", 3, 1, 100, with_headers=True, with_key=key, with_value=value)
    assert found.schema == schema(key=key, value=value, headers=True)
    assert found.to_pydict() == complete.select(found.schema.names).to_pydict()


def test_large_values_are_not_kept():
    (section,) = sections(memoryview(by_aiokafka(LARGE)), 0, 100, None)
    assert len(without(section, key=True, value=True).records) < 300
    assert len(without(section, key=False, value=True).records) < 10_000
    assert without(section, key=False, value=False) is section


@pytest.mark.parametrize(
    "records",
    [
        bytes([0x80] * 5_000),
        bytes(5_000),
        b"\x90\x4e\x00\x00\x00\x01\xff\xff\x01" + bytes(5_000),
        b"\x0c\x00\x00\x00\x01\xfe\x7f" + bytes(5_000),
        b"\x01" + bytes(5_000),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_damaged_records_are_refused(records, count):
    (section,) = sections(memoryview(raw_batch(records, count)), 0, 100, None)
    with pytest.raises(CorruptBatch):
        decode(
            [without(section, key=True, value=True)],
            "lines",
            0,
            0,
            100,
            with_headers=False,
        )


def test_every_truncation_of_a_large_record_is_refused():
    (section,) = sections(memoryview(by_aiokafka(LARGE[:1])), 0, 100, None)
    for size in range(1_024, len(section.records)):
        with pytest.raises(CorruptBatch):
            without(section._replace(records=section.records[:size]), key=True, value=True)
