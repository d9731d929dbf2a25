"""Tables on a local disk that other programs create, change or clean up, and places that hold something else."""

from __future__ import annotations

import base64
import json
import string
import struct
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.table import TableOptimizer
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, LongType, NestedField, UUIDType
from support.spark.lakes import READERS, arrow_of, iceberg_table, rows_of, settings_of, staged

from minikafka.base.errors import ConfigError
from minikafka.spark.lakehouse import iceberg
from minikafka.spark.lakehouse.columns import SchemaNarrows, evolution
from minikafka.spark.lakehouse.delta import WRITER_FEATURES
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.stage import NullRefused
from minikafka.spark.lakehouse.tables import (
    DELTA,
    FORMATS,
    ICEBERG,
    RECORDS,
    LakeTable,
    Overtaken,
    TableChange,
    TableError,
)
from minikafka.spark.storage.files import DirectoryBusy

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
LATER_MS = 1 << 45
each_format = pytest.mark.parametrize("format", FORMATS)


def add(table: LakeTable, *numbers: int) -> None:
    """Add a file for each number."""
    for number in numbers:
        batch = pa.RecordBatch.from_pylist([{"k": "a", "n": number}], schema=SCHEMA)
        expected = {"batch": number - 1} if number else {}
        table.commit(TableChange(staged(table, batch), {"batch": number}, expected))


def numbers_of(format: str, place: Path, reader: str = "") -> list[object]:
    return [number for (number,) in rows_of(format, place, "n", reader=reader)]


def before(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, action) -> None:
    """Run an action before the first call of a function."""
    original, actions = getattr(owner, name), [action]

    def late(*given, **named):
        if actions:
            actions.pop()()
        return original(*given, **named)

    monkeypatch.setattr(owner, name, late)


@each_format
def test_stream_continues_after_another_program_has_merged_and_removed_files(tmp_path, format):
    table = open_table(settings_of(format, tmp_path))
    add(table, 0, 1, 2)
    if format == DELTA:
        other = DeltaTable(str(tmp_path))
        other.optimize.compact()
        assert other.vacuum(0, dry_run=False, enforce_retention_duration=False)
    else:
        found = iceberg_table(tmp_path)
        found.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
        assert len(found.metadata.snapshots) == 1
    add(table, 3)
    for reader in READERS[format]:
        assert numbers_of(format, tmp_path, reader) == [0, 1, 2, 3]


@each_format
def test_two_writers_that_create_a_table_at_the_same_time_both_continue(
    tmp_path, monkeypatch, format
):
    first, second = (open_table(settings_of(format, tmp_path)) for _ in range(2))
    before(monkeypatch, type(first), "_create", lambda: add(second, 0))
    add(first, 1)
    assert numbers_of(format, tmp_path) == [0, 1]


def test_new_column_and_expiry_are_repeated_after_a_lost_race(tmp_path, monkeypatch):
    table = open_table(settings_of(ICEBERG, tmp_path))
    add(table, 0, 1)
    failures = []

    def fails():
        failures.append(True)
        raise CommitFailedException("another writer was faster")

    wider = SCHEMA.append(pa.field("more", pa.int64()))
    before(monkeypatch, SqlCatalog, "commit_table", fails)
    table.prepare(wider)
    before(monkeypatch, SqlCatalog, "commit_table", fails)
    assert table.expire(0, LATER_MS).snapshots == 1
    assert len(failures) == 2
    assert rows_of(ICEBERG, tmp_path, "n", "more") == [(0, None), (1, None)]


def test_second_of_two_compactions_at_the_same_time_changes_nothing(tmp_path, monkeypatch):
    first, second = (open_table(settings_of(ICEBERG, tmp_path)) for _ in range(2))
    add(first, 0, 1, 2)
    before(monkeypatch, type(first), "_merge", lambda: second.compact(1 << 20))
    with pytest.raises(Overtaken, match="has merged files or deleted rows at the same time: run"):
        first.compact(1 << 20)
    assert numbers_of(ICEBERG, tmp_path) == [0, 1, 2]


def test_second_of_two_compactions_of_a_delta_table_is_refused(tmp_path, monkeypatch):
    first, second = (open_table(settings_of(DELTA, tmp_path)) for _ in range(2))
    add(first, 0, 1, 2)

    def busy():
        with pytest.raises(DirectoryBusy, match=r"writes the table .+: wait for it, or end it"):
            second.compact(1 << 20)

    before(monkeypatch, TableOptimizer, "compact", busy)
    assert first.compact(1 << 20).merged == 3
    assert numbers_of(DELTA, tmp_path) == [0, 1, 2]


def test_rows_that_another_program_has_merged_at_the_same_time_are_reported(tmp_path, monkeypatch):
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0, 1, 2)
    other = DeltaTable(str(tmp_path))
    before(monkeypatch, TableOptimizer, "compact", lambda: other.optimize.compact())
    with pytest.raises(
        TableError, match="twice since version 5: stop its writers, restore version 4"
    ):
        table.compact(1 << 20)
    DeltaTable(str(tmp_path)).restore(4)
    assert table.compact(1 << 20).merged == 0
    assert numbers_of(DELTA, tmp_path) == [0, 1, 2]


def test_compaction_whose_commit_is_repeated_after_a_lost_response_succeeds(tmp_path, monkeypatch):
    """The library takes its own commit for one of another writer, and commits the same files again."""
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0, 1, 2)
    original = TableOptimizer.compact

    def repeated(self, *given, **named):
        found = original(self, *given, **named)
        log = tmp_path / "_delta_log"
        (log / f"{5:020}.json").write_text((log / f"{4:020}.json").read_text())
        self.table.update_incremental()
        return found

    monkeypatch.setattr(TableOptimizer, "compact", repeated)
    assert table.compact(1 << 20).merged == 3
    assert numbers_of(DELTA, tmp_path) == [0, 1, 2]


def test_compaction_of_a_delta_table_in_which_rows_are_deleted_fails(tmp_path, monkeypatch):
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0, 1, 2)
    other = DeltaTable(str(tmp_path))
    before(monkeypatch, TableOptimizer, "compact", lambda: other.delete("n = 1"))
    with pytest.raises(TableError, match="deleted rows at the same time: run the command again"):
        table.compact(1 << 20)
    assert table.compact(1 << 20).merged == 2
    assert numbers_of(DELTA, tmp_path) == [0, 2]


def test_two_writers_may_name_the_newest_metadata_at_the_same_time(tmp_path, monkeypatch):
    first, second = (open_table(settings_of(ICEBERG, tmp_path)) for _ in range(2))
    add(first, 0)
    before(monkeypatch, iceberg.os, "replace", lambda: second._hint())
    first._hint()
    assert numbers_of(ICEBERG, tmp_path, "directory") == [0]


def test_files_of_an_older_partitioning_are_not_merged_with_newer_files(tmp_path):
    table = open_table(settings_of(ICEBERG, tmp_path))
    add(table, 0, 1)
    with iceberg_table(tmp_path).update_spec() as update:
        update.add_identity("k")
    with pytest.raises(ConfigError, match="is partitioned by k, not by no column"):
        add(table, 2)
    partitioned = open_table(settings_of(ICEBERG, tmp_path, partition_by=["k"]))
    add(partitioned, 2, 3)
    assert partitioned.compact(1 << 20).merged == 2
    assert numbers_of(ICEBERG, tmp_path) == [0, 1, 2, 3]


def test_rows_of_an_older_partitioning_are_refused_at_their_commit(tmp_path):
    table = open_table(settings_of(ICEBERG, tmp_path, partition_by=["k"]))
    add(table, 0)
    batch = pa.RecordBatch.from_pylist([{"k": "a", "n": 1}], schema=SCHEMA)
    files = staged(table, batch)
    with iceberg_table(tmp_path).update_spec() as update:
        update.remove_field("k")
        update.add_field("n", BucketTransform(4), "n_bucket")
    with pytest.raises(Overtaken, match="partition_by: another process has changed"):
        table.commit(TableChange(files))
    assert numbers_of(ICEBERG, tmp_path) == [0]


@each_format
def test_column_of_another_program_is_null_only_if_the_writer_says_so(tmp_path, format):
    table = open_table(settings_of(format, tmp_path))
    add(table, 0)
    if format == DELTA:
        more = Schema.from_arrow(pa.schema([("more", pa.int64())])).fields
        DeltaTable(str(tmp_path)).alter.add_columns(more)
    else:
        with iceberg_table(tmp_path).update_schema() as update:
            update.add_column("more", LongType())
    with pytest.raises(SchemaNarrows, match=r"add cast\(null as bigint\) more to the query"):
        table.prepare(SCHEMA)
    table.prepare(SCHEMA, may_lack=True)
    batch = pa.RecordBatch.from_pylist([{"k": "b", "n": 1}], schema=SCHEMA)
    table.commit(TableChange(staged(table, batch, may_lack=True)))
    assert rows_of(format, tmp_path, "n", "more") == [(0, None), (1, None)]


@each_format
def test_place_with_other_files_is_refused_for_a_new_table(tmp_path, format):
    """The upkeep of a table removes files in its directory that are not part of it."""
    other = DELTA if format == ICEBERG else ICEBERG
    add(open_table(settings_of(other, tmp_path)), 0)
    with pytest.raises(ConfigError, match="name a directory that only this table uses"):
        add(open_table(settings_of(format, tmp_path)), 0)
    assert numbers_of(other, tmp_path) == [0]


def test_second_table_in_the_directory_of_a_table_is_refused(tmp_path):
    add(open_table(settings_of(ICEBERG, tmp_path, table="shop.one")), 0)
    with pytest.raises(ConfigError, match="is not empty, it holds data"):
        add(open_table(settings_of(ICEBERG, tmp_path, table="shop.two")), 0)


@each_format
def test_creation_that_was_interrupted_is_repeated(tmp_path, format):
    folder = tmp_path / ("_delta_log" if format == DELTA else "metadata")
    folder.mkdir()
    (folder / "draft").touch()
    add(open_table(settings_of(format, tmp_path)), 0)
    assert numbers_of(format, tmp_path) == [0]


@each_format
@pytest.mark.parametrize("partition_by", [[], ["hour(time)", "day"]])
def test_last_and_first_times_that_readers_show_are_kept(tmp_path, format, partition_by):
    schema = pa.schema(
        [("time", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("n", pa.int64())]
    )
    last = {"time": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), "day": date(9999, 12, 31)}
    first = {"time": datetime(1, 1, 1, tzinfo=UTC), "day": date(1, 1, 1)}
    table = open_table(settings_of(format, tmp_path, partition_by=partition_by))
    batch = pa.RecordBatch.from_pylist([last | {"n": 1}, first | {"n": 0}], schema=schema)
    for _ in range(2):
        table.commit(TableChange(staged(table, batch)))
    table.compact(1 << 20)
    wanted = [first["time"], first["time"], last["time"], last["time"]]
    assert arrow_of(format, tmp_path).sort_by("n").column("time").to_pylist() == wanted


@pytest.mark.parametrize("rule", ["delta.constraints.positive", "delta.columnMapping.mode"])
def test_delta_table_with_a_rule_that_the_writer_would_break_is_refused(tmp_path, rule):
    versions = {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    mapped = {"delta.columnMapping.mode": "name", **versions} if "Mapping" in rule else None
    made = DeltaTable.create(str(tmp_path), Schema.from_arrow(SCHEMA), configuration=mapped)
    if not mapped:
        made.alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(ConfigError, match=f"has the rule {rule}, which files of this writer"):
        add(open_table(settings_of(DELTA, tmp_path)), 0)


def change_log(place: Path, *actions: dict[str, object]) -> None:
    """Add a commit with these actions to the log of a Delta table, as another program does."""
    log = place / "_delta_log"
    version = 1 + max(int(one.stem) for one in log.glob("*.json"))
    text = "".join(json.dumps(one) + "\n" for one in actions)
    (log / f"{version:020}.json").write_text(text)


def protocol(reader: list[str], writer: list[str]) -> dict[str, object]:
    """Return the action that sets the features of a Delta table."""
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": reader, "writerFeatures": writer}}


NEWER = [
    (protocol([], ["appendOnly", "newFeature"]), "has the writer feature newFeature, which this"),
    (protocol([], ["rowTracking", "domainMetadata"]), "has the writer feature domainMetadata, w"),
    (
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 6}},
        "feature identityColumns, which",
    ),
    ({"protocol": {"minReaderVersion": 1, "minWriterVersion": 8}}, "has the writer version 8, and"),
    (
        protocol(["newFeature"], ["newFeature"]),
        "deltalake cannot read .*Feature 'newFeature' is not",
    ),
]


@pytest.mark.parametrize(("action", "reason"), NEWER, ids=[reason for _, reason in NEWER])
def test_delta_table_that_the_library_cannot_write_is_refused_before_a_file_is_written(
    tmp_path, action, reason
):
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0)
    change_log(tmp_path, action)
    before = sorted(tmp_path.rglob("*"))
    for write in (partial(add, table, 1), partial(table.compact, 1 << 20)):
        with pytest.raises((ConfigError, TableError), match=f"{reason}.*name a new table$") as one:
            write()
        assert str(tmp_path) in str(one.value)
        assert "\n" not in str(one.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_delta_table_gets_rows_with_every_feature_that_the_library_writes(tmp_path):
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0)
    readers = ["deletionVectors", "v2Checkpoint", "timestampNtz", "columnMapping", "variantType"]
    change_log(tmp_path, protocol(readers, sorted(WRITER_FEATURES - {"variantType-preview"})))
    add(table, 1)
    assert table.compact(1 << 20).merged == 2
    assert numbers_of(DELTA, tmp_path) == [0, 1]


@pytest.mark.parametrize("version", range(1, 6))
def test_delta_table_of_an_older_writer_version_gets_rows(tmp_path, version):
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0)
    change_log(tmp_path, {"protocol": {"minReaderVersion": 1, "minWriterVersion": version}})
    add(table, 1)
    assert numbers_of(DELTA, tmp_path) == [0, 1]


def test_delta_table_that_allows_only_appends_is_not_overwritten(tmp_path):
    only = {"delta.appendOnly": "true"}
    DeltaTable.create(str(tmp_path), Schema.from_arrow(SCHEMA), configuration=only)
    table = open_table(settings_of(DELTA, tmp_path))
    add(table, 0)
    with pytest.raises(ConfigError, match=r"property delta\.appendOnly: append to the table"):
        table.commit(TableChange([], overwrite=True))
    assert numbers_of(DELTA, tmp_path) == [0]


def deletion_vector(*rows: int) -> dict[str, object]:
    """Return the descriptor of a deletion vector of Delta's protocol that is stored in the log."""
    bitmap = struct.pack(f"<IIHHI{len(rows)}H", 12346, 1, 0, len(rows) - 1, 16, *rows)
    data = struct.pack("<iqi", 1681511377, 1, 0) + bitmap
    padded = base64.b85encode(data + bytes(-len(data) % 4)).decode()
    text = padded.translate(str.maketrans(BASE85, Z85))
    sizes = {"sizeInBytes": len(data), "cardinality": len(rows)}
    return {"storageType": "i", "pathOrInlineDv": text, **sizes}


LETTERS = string.ascii_lowercase + string.ascii_uppercase
Z85 = string.digits + LETTERS + ".-:+=^!/*?&<>()[]{}@%$#"
BASE85 = string.digits + LETTERS.swapcase() + "!#$%&()*+-;<=>?@^_`{|}~"


def test_rows_of_a_deletion_vector_stay_deleted_when_the_table_is_compacted(tmp_path):
    table = open_table(settings_of(DELTA, tmp_path))
    rows = [{"k": "a", "n": number} for number in range(5)]
    table.commit(TableChange(staged(table, pa.RecordBatch.from_pylist(rows, schema=SCHEMA))))
    newest = max((tmp_path / "_delta_log").glob("*.json")).read_text().splitlines()
    [added] = [json.loads(line)["add"] for line in newest if '"add"' in line]
    same = {"path": added["path"], "partitionValues": {}, "size": added["size"]}
    removed = {**same, "deletionTimestamp": added["modificationTime"], "dataChange": True}
    features = protocol(["deletionVectors"], ["deletionVectors"])
    marked = {"add": {**added, "deletionVector": deletion_vector(0, 2)}}
    change_log(tmp_path, features, {"remove": removed}, marked)
    assert numbers_of(DELTA, tmp_path) == [1, 3, 4]
    add(table, 0)
    assert table.compact(1 << 20).merged == 2
    assert numbers_of(DELTA, tmp_path) == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("kind", "required", "reason"),
    [
        (UUIDType(), False, "type extension<arrow.uuid>, which Spark does not have: drop the"),
        (DateType(), True, "which must not be null in .*: add it to the query, or name a new"),
    ],
)
def test_column_that_rows_cannot_have_is_refused_with_a_remedy_that_works(
    tmp_path, kind, required, reason
):
    made = IcebergSchema(
        NestedField(1, "n", LongType()), NestedField(2, "other", kind, required=required)
    )
    with pytest.raises(SchemaNarrows, match=reason):
        evolution(
            made.as_arrow(), pa.schema([("n", pa.int64())]), "t", can_widen=True, may_lack=False
        )


def test_partitioning_that_cannot_be_named_is_refused_without_the_advice_to_name_it(tmp_path):
    with SqlCatalog(
        "default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path)
    ) as catalog:
        catalog.create_namespace("minikafka")
        table = catalog.create_table(RECORDS, SCHEMA, location=f"file://{tmp_path}")
        with table.update_spec() as spec:
            spec.add_field("n", BucketTransform(4))
    with pytest.raises(ConfigError, match=r"by bucket\[4\]\(n\), .*: it cannot be set: name a new"):
        add(open_table(settings_of(ICEBERG, tmp_path)), 0)


@each_format
def test_null_in_a_column_that_must_not_be_null_is_refused_with_its_record(tmp_path, format):
    schema = pa.schema([pa.field("offset", pa.int64(), nullable=False), ("topic", pa.string())])
    if format == DELTA:
        DeltaTable.create(str(tmp_path), Schema.from_arrow(schema))
    else:
        place = str(tmp_path)
        catalog = SqlCatalog("default", uri=f"sqlite:///{place}/catalog.db", warehouse=place)
        catalog.create_namespace("minikafka")
        catalog.create_table(RECORDS, schema, location=f"file://{place}")
        catalog.close()
    batch = pa.RecordBatch.from_pylist(
        [{"topic": "clicks"}], schema=pa.schema([("offset", pa.int64()), ("topic", pa.string())])
    )
    with pytest.raises(NullRefused, match="column offset of topic clicks, offset None is null"):
        staged(open_table(settings_of(format, tmp_path)), batch)


@each_format
@pytest.mark.parametrize("name", ["a%20b", "a#b", "a?b", "file"])
def test_path_that_the_libraries_would_read_as_another_is_refused(tmp_path, format, name):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"name (another|the directory of the table)"):
        open_table(settings_of(format, tmp_path / name))


@each_format
def test_directory_with_spaces_and_letters_of_all_languages_holds_a_table(tmp_path, format):
    place = tmp_path / "größe 1 & 2+3"
    table = open_table(settings_of(format, place))
    add(table, 0, 1)
    table.compact(1 << 20)
    for reader in READERS[format]:
        assert numbers_of(format, place, reader) == [0, 1]


@pytest.mark.parametrize("name", ["records", ".records", "shop.", "shop. "])
def test_name_without_a_namespace_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="table must be NAMESPACE"):
        open_table(settings_of(ICEBERG, tmp_path, table=name))
