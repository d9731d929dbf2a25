"""Tables of Delta Lake, through the library deltalake (delta-rs), which needs no Java.

A mark is the version of a transaction identifier (`txn` in Delta's protocol), which the cleanup of the log keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.lakehouse.columns import evolution
from minikafka.spark.lakehouse.delta_stats import statistics
from minikafka.spark.lakehouse.places import absolute
from minikafka.spark.lakehouse.rules import HOUR, Key, PartitionRule, check_rules
from minikafka.spark.lakehouse.stage import LakeFile
from minikafka.spark.lakehouse.tables import (
    COMMITS_MAX,
    ORPHAN_S,
    Expired,
    LakeSettings,
    Layout,
    Marks,
    MergedFiles,
    NoLibrary,
    TableError,
    check_marks,
)

_EPOCH: Final = date(1970, 1, 1)
_HOURS: Final = 24
_HOUR_S: Final = 3600


class DeltaLakeTable:
    """A Delta table at a path or URI."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._place = absolute(settings.place)
        self._rules = settings.partition_by
        """The partitioning, after `prepare` with the names that the table has for the columns."""
        try:
            self._library = import_module("deltalake")
            self._errors = import_module("deltalake.exceptions")
        except ModuleNotFoundError as error:
            raise NoLibrary(
                "the format delta needs deltalake: pip install 'minikafka[delta]'"
            ) from error

    def exists(self) -> bool:
        """True if the table exists."""
        with self._reported():
            return bool(self._library.DeltaTable.is_deltatable(self._place, self._storage))

    @property
    def _storage(self) -> dict[str, str] | None:
        return dict(self._settings.storage) or None

    def _load(self) -> Any:
        with self._reported():
            return self._library.DeltaTable(self._place, storage_options=self._storage)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise the errors of the library as `TableError` with a text of one line."""
        try:
            yield
        except (self._errors.DeltaError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TableError(f"the Delta table {self._place}: {reason}") from error

    def prepare(self, rows: pa.Schema) -> Layout:
        """Create the table, or add the columns that it lacks."""
        rules = check_rules(self._settings.partition_by, rows)
        derived = _derived(rules, rows)
        if not self.exists():
            self._create(pa.schema([*rows, *derived]), rules)
        table = self._load()
        self._check_partitioning(table, rules)
        found = _schema(table)
        computed = [field.name for field in derived]
        change = evolution(found, rows, self._settings.shown, can_widen=False, derived=computed)
        if change.added:
            self._add_columns(table, change.added)
            found = _schema(self._load())
        columns = list(_in_order(found, rows))
        names = tuple(field.name for field in columns)
        rules = self._rules = check_rules(rules, pa.schema(columns))
        left_out = set(_partition_columns(rules))
        files = [field for field in columns if field.name not in left_out]
        if not files:
            raise ConfigError(
                "partition_by: at least one column must be left for the files; leave out a column"
            )
        return Layout(names, pa.schema(files), rules, f"{self._place}/data")

    def _create(self, schema: pa.Schema, rules: Sequence[PartitionRule]) -> None:
        with self._reported():
            self._library.DeltaTable.create(
                self._place,
                self._library.Schema.from_arrow(schema),
                mode="ignore",
                partition_by=_partition_columns(rules),
                storage_options=self._storage,
            )

    def _check_partitioning(self, table: Any, rules: Sequence[PartitionRule]) -> None:
        wanted, found = _partition_columns(rules), list(table.metadata().partition_columns)
        if [name.lower() for name in wanted] != [name.lower() for name in found]:
            raise ConfigError(
                f"partition_by: {self._place} is partitioned by {', '.join(found) or 'no column'}, not by"
                f" {', '.join(wanted) or 'no column'}: set the same partitioning, or name a new table"
            )

    def _add_columns(self, table: Any, fields: Sequence[pa.Field]) -> None:
        with self._reported():
            table.alter.add_columns(self._library.Schema.from_arrow(pa.schema(fields)).fields)

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """Return the marks that the table has."""
        return _marks(self._load(), names) if self.exists() else {}

    def commit(
        self,
        files: Sequence[LakeFile],
        marks: Marks,
        expected: Marks,
        notes: Mapping[str, str],
        *,
        overwrite: bool = False,
    ) -> None:
        """Add files and set marks in one step."""
        for attempt in range(1, COMMITS_MAX + 1):
            table = self._load()
            check_marks(_marks(table, list(marks)), expected, marks, self._settings.shown)
            try:
                self._commit(table, files, marks, notes, "overwrite" if overwrite else "append")
            except self._errors.DeltaError as error:
                if attempt == COMMITS_MAX or not isinstance(error, self._errors.CommitFailedError):
                    raise TableError(
                        f"the Delta table {self._place}: {str(error).splitlines()[0]}"
                    ) from error
            else:
                return

    def _commit(
        self,
        table: Any,
        files: Sequence[LakeFile],
        marks: Marks,
        notes: Mapping[str, str],
        mode: str,
    ) -> None:
        library = self._library
        transactions = [library.Transaction(name, number) for name, number in marks.items()]
        properties = library.CommitProperties(
            custom_metadata=dict(notes), app_transactions=transactions
        )
        table.create_write_transaction(
            [self._added(one) for one in files],
            mode,
            table.schema(),
            partition_by=_partition_columns(self._rules),
            commit_properties=properties,
        )

    def _added(self, file: LakeFile) -> Any:
        return self._library.transaction.AddAction(
            path=file.path.removeprefix(f"{self._place}/"),
            size=file.bytes,
            partition_values=_partition_values(self._rules, file.key),
            modification_time=file.modified_ms,
            data_change=True,
            stats=statistics(file.footer),
        )

    def compact(self, target_bytes: int) -> MergedFiles:
        """Merge small files. The library repeats the commit if other writers add files at the same time."""
        with self._reported():
            metrics = self._load().optimize.compact(target_size=target_bytes)
        return MergedFiles(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def expire(self, age_s: int, now_ms: int) -> Expired:
        """Remove replaced files. The library counts in hours, so the age is rounded up."""
        hours = -(-age_s // _HOUR_S)
        orphan_hours = max(hours, ORPHAN_S // _HOUR_S)
        with self._reported():
            table = self._load()
            removed = table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
            removed += table.vacuum(
                orphan_hours, dry_run=False, enforce_retention_duration=False, full=True
            )
        return Expired(None, len(set(removed)))


def _marks(table: Any, names: Sequence[str]) -> dict[str, int]:
    found = {name: table.transaction_version(name) for name in names}
    return {name: number for name, number in found.items() if number is not None}


def _schema(table: Any) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _in_order(table: pa.Schema, rows: pa.Schema) -> Iterator[pa.Field]:
    """Yield the columns of the rows with the names and types of the table."""
    names = {field.name.lower(): field for field in table}
    for field in rows:
        found = names[field.name.lower()]
        yield pa.field(found.name, field.type)


def _derived(rules: Sequence[PartitionRule], rows: pa.Schema) -> list[pa.Field]:
    """Return the partition columns that the rows do not have: the date, and the hour of the day."""
    taken = {name.lower() for name in rows.names}
    fields: dict[str, pa.Field] = {}
    for rule in rules:
        for name in _columns_of(rule) if rule.unit else ():
            if name.lower() in taken:
                raise ConfigError(
                    f"partition_by: {rule} needs the name {name}: rename the column {name}"
                )
            fields[name] = pa.field(name, pa.int32() if name.endswith("_hour") else pa.date32())
    return list(fields.values())


def _columns_of(rule: PartitionRule) -> list[str]:
    if not rule.unit:
        return [rule.column]
    names = [f"{rule.column}_date"]
    return [*names, f"{rule.column}_hour"] if rule.unit == HOUR else names


def _partition_columns(rules: Sequence[PartitionRule]) -> list[str]:
    return list(dict.fromkeys(name for rule in rules for name in _columns_of(rule)))


def _partition_values(rules: Sequence[PartitionRule], key: Key) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for rule, value in zip(rules, key, strict=True):
        found |= zip(_columns_of(rule), _texts(rule, value), strict=True)
    return found


def _texts(rule: PartitionRule, value: Any) -> list[str | None]:
    """Return the values of a rule's columns as the protocol writes them."""
    if value is None:
        return [None] * len(_columns_of(rule))
    if not rule.unit:
        return [str(value).lower() if isinstance(value, bool) else str(value)]
    if rule.unit == HOUR:
        return [_day(value // _HOURS), str(value % _HOURS)]
    return [_day(value)]


def _day(number: int) -> str:
    return (_EPOCH + timedelta(days=number)).isoformat()
