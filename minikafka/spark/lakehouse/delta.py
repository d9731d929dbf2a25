"""Tables of Delta Lake, through the library deltalake (delta-rs), which needs no Java.

A mark is the version of a transaction identifier (`txn` in Delta's protocol), which the cleanup of the log keeps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, timedelta
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemClock
from minikafka.spark.lakehouse.columns import evolution
from minikafka.spark.lakehouse.delta_stats import statistics
from minikafka.spark.lakehouse.places import (
    StoreOptions,
    absolute,
    check_unused,
    check_uri,
    data_files,
    is_remote,
    local_path,
)
from minikafka.spark.lakehouse.rules import HOUR, Key, PartitionRule, check_rules
from minikafka.spark.lakehouse.stage import LakeFile
from minikafka.spark.lakehouse.tables import (
    COMMIT,
    COMMITS_MAX,
    ORPHAN_S,
    Expired,
    LakeSettings,
    Layout,
    Marks,
    MergedFiles,
    NoLibrary,
    NotCommitted,
    TableChange,
    TableError,
    commit_once,
)
from minikafka.spark.storage.explain import explained
from minikafka.spark.storage.lease import held
from minikafka.spark.storage.local import LocalFiles
from minikafka.spark.storage.locations import open_store

_EPOCH: Final = date(1970, 1, 1)
_HOURS: Final = 24
_HOUR_S: Final = 3600
_LOG: Final = "_delta_log"
_UNSAFE: Final = "allow_unsafe_rename"
_CONSTRAINTS: Final = "delta.constraints."
_APPEND_ONLY: Final = "delta.appendOnly"
_MAPPING: Final = "delta.columnMapping.mode"
_COMPUTED: Final = ("delta.generationExpression", "delta.identity.", "delta.invariants")
_ADDRESS: Final = re.compile(r"(?i)endpoint|base_url")
_LOCKING: Final = ("locking_provider", "dynamo", "conditional_put")
"""Parts of the names of options that only deltalake has."""
_WRITER_VERSION: Final = 7
"""The writer version of Delta's protocol that lists the features of a table."""
_IN_VERSION_6: Final = "identityColumns"
"""The writer feature that version 6 of the protocol contains, and version 5 does not."""
WRITER_FEATURES: Final = {
    *("appendOnly", "changeDataFeed", "deletionVectors", "v2Checkpoint", "timestampNtz"),
    *("invariants", "checkConstraints", "generatedColumns", "columnMapping"),
    *("variantType", "variantType-preview"),
}
"""The writer features with which deltalake commits. `_check_rules` refuses what the files would not keep of them."""


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
        self._check_storage()

    def _check_storage(self) -> None:
        """Raise `ConfigError` if the place or an option of its store is not known."""
        given = self._settings.storage
        if unsafe := [name for name in given if _UNSAFE in name.lower()]:
            raise ConfigError(
                f"storage: with {unsafe[0]}, two writers could remove each other's rows: leave it out, which needs a"
                " store with conditional writes"
            )
        if self._place.startswith("gs:") and (
            tokens := [name for name in given if "bearer" in name]
        ):
            raise ConfigError(
                f"storage: deltalake does not know {tokens[0]} for Google: set service_account instead"
            )
        if given and not is_remote(self._place):
            raise ConfigError(
                f"{self._place}: the option {min(given)} of a store has no effect on a directory: remove it, or name"
                " a URI"
            )
        if is_remote(self._place):
            check_uri(self._place, self._of_files.names, "az")
        data_files(self._place, self._of_files)

    @property
    def _of_files(self) -> StoreOptions:
        """The options of the store for those who write data files, without those of commits."""
        return StoreOptions(
            {
                name: value
                for name, value in self._settings.storage.items()
                if not any(part in name.lower() for part in _LOCKING)
            }
        )

    def exists(self) -> bool:
        """True if the table exists."""
        with self._reported():
            return bool(self._library.DeltaTable.is_deltatable(self._place, self._storage))

    @property
    def _storage(self) -> dict[str, str] | None:
        given = dict(self._settings.storage)
        if any(_ADDRESS.search(name) and one.startswith("http:") for name, one in given.items()):
            given.setdefault("allow_http", "true")
        return given or None

    def newest(self) -> Any:
        """Return the newest state of the table. Raises `ConfigError` for a feature that the writer lacks."""
        with self._reported():
            try:
                table = self._library.DeltaTable(self._place, storage_options=self._storage)
            except (
                self._errors.DeltaError
            ) as error:  # not about the store, whose errors are OSError
                raise TableError(
                    f"deltalake cannot read {self._place} ({_headline(error)}): remove the feature, or repair the"
                    " table, with the engine that wrote it, or name a new table"
                ) from error
        self._check_features(table.protocol())
        return table

    def _check_features(self, protocol: Any) -> None:
        version = protocol.min_writer_version
        found = set(protocol.writer_features or ()) - WRITER_FEATURES
        if version == _WRITER_VERSION - 1:
            found.add(_IN_VERSION_6)
        if found:
            raise ConfigError(
                f"{self._place} has the writer feature {min(found)}, which this writer does not support: remove the"
                " feature from the table with the engine that added it, or name a new table"
            )
        if version > _WRITER_VERSION:
            raise ConfigError(
                f"{self._place} has the writer version {version}, and this writer supports versions up to"
                f" {_WRITER_VERSION}: name a new table"
            )

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise the errors of the library as `TableError` with a text of one line."""
        try:
            yield
        except (self._errors.DeltaError, OSError) as error:
            raise TableError(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        if is_remote(self._place):
            return explained(self._place, "", "write", error)
        return f"the Delta table {self._place}: {_headline(error)}"

    def prepare(
        self, rows: pa.Schema, marks: Marks | None = None, *, may_lack: bool = False
    ) -> Layout:
        """Create the table with these marks, or add the columns that it lacks.

        If another driver does so at the same time, or a response is lost, the second attempt finds it done.
        """
        try:
            return self._prepared(rows, marks or {}, may_lack)
        except TableError as error:
            if not isinstance(error.__cause__, self._errors.DeltaError):
                raise
            return self._prepared(rows, marks or {}, may_lack)

    def _prepared(self, rows: pa.Schema, marks: Marks, may_lack: bool) -> Layout:
        rules = check_rules(self._settings.partition_by, rows)
        derived = _derived(rules, rows)
        if not self.exists():
            self._create(pa.schema([*rows, *derived]), rules, marks)
        table = self.newest()
        self._check_rules(table)
        self._check_partitioning(table, rules)
        computed = {field.name for field in derived}
        own = pa.schema([field for field in _schema(table) if field.name not in computed])
        change = evolution(own, rows, self._place, can_widen=False, may_lack=may_lack)
        if change.added:
            self._add_columns(table, change.added)
            table = self.newest()
        columns = pa.schema(_in_order(_schema(table), rows))
        rules = self._rules = check_rules(rules, columns)
        files = _columns_of_files(columns, rules)
        directory = f"{self._place}/data"
        return Layout(tuple(columns.names), files, rules, directory, self._of_files)

    def _create(self, schema: pa.Schema, rules: Sequence[PartitionRule], marks: Marks) -> None:
        check_unused(self._place, self._of_files, (_LOG,), self.exists)
        with self._reported():
            self._library.DeltaTable.create(
                self._place,
                self._library.Schema.from_arrow(schema),
                mode="ignore",
                partition_by=_partition_columns(rules),
                storage_options=self._storage,
                commit_properties=self._properties(marks, {}),
            )

    def _check_rules(self, table: Any) -> None:
        """Raise `ConfigError` for a table with rules that a writer of files must keep, and that this one does not."""
        configuration = table.metadata().configuration
        found = [name for name in configuration if name.startswith(_CONSTRAINTS)]
        if configuration.get(_MAPPING, "none") != "none":
            found.append(_MAPPING)
        for field in table.schema().fields:
            found += [name for name in field.metadata if name.startswith(_COMPUTED)]
        if found:
            raise ConfigError(
                f"{self._place} has the rule {found[0]}, which files of this writer would not keep: remove it from the"
                " table, or name a new table"
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
        return self.marks_in(self.newest(), names) if self.exists() else {}

    def marks_in(self, state: Any, names: Sequence[str]) -> dict[str, int]:
        """Return the marks of a state."""
        found = {name: state.transaction_version(name) for name in names}
        return {name: number for name, number in found.items() if number is not None}

    def has_commit(self, state: Any, unique: str) -> bool:
        """True if one of the last commits has this note."""
        return any(entry.get(COMMIT) == unique for entry in state.history(10 * COMMITS_MAX))

    def commit(self, change: TableChange) -> None:
        """Add files and set marks in one step."""
        commit_once(self, change, self._settings.shown, self._attempt)

    def _attempt(self, state: Any, change: TableChange) -> None:
        if change.overwrite and state.metadata().configuration.get(_APPEND_ONLY) == "true":
            raise ConfigError(
                f"{self._place} has the property {_APPEND_ONLY}: append to the table, or name a new table"
            )
        now_ms = SystemClock().wall_ms()
        with self._reported():
            try:
                state.create_write_transaction(
                    [self._added(one, now_ms) for one in change.files],
                    "overwrite" if change.overwrite else "append",
                    state.schema(),
                    partition_by=_partition_columns(self._rules),
                    commit_properties=self._properties(change.marks, change.notes),
                )
            except self._errors.CommitFailedError as error:
                raise NotCommitted(self._sentence(error)) from error

    def _properties(self, marks: Marks, notes: Mapping[str, str]) -> Any:
        """Return the marks and notes of a commit, as the library wants them."""
        transactions = [self._library.Transaction(name, number) for name, number in marks.items()]
        return self._library.CommitProperties(
            custom_metadata=dict(notes), app_transactions=transactions
        )

    def _added(self, file: LakeFile, now_ms: int) -> Any:
        return self._library.transaction.AddAction(
            path=file.path.removeprefix(f"{self._place}/"),
            size=file.bytes,
            partition_values=_partition_values(self._rules, file.key),
            modification_time=now_ms,
            data_change=True,
            stats=statistics(file.footer),
        )

    def compact(self, target_bytes: int) -> MergedFiles:
        """Merge small files. The library repeats the commit if other writers add files at the same time.

        The library does not notice that another process merges the same files, so only one does so at a time.
        """
        self.newest()  # refuses a table that the library cannot write, before the lock makes a file
        with self._only_merger(), self._reported():
            table = self.newest()
            before = table.version()
            try:
                metrics = table.optimize.compact(target_size=target_bytes)
            except self._errors.CommitFailedError as error:
                raise TableError(
                    f"{self._place}: another process has changed the table or deleted rows at the same time: run the"
                    " command again"
                ) from error
            self._check_merged(before, table.version())
        return MergedFiles(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def _only_merger(self) -> AbstractContextManager[None]:
        """Be the only process of this project that merges files of the table. Raises `DirectoryBusy`."""
        if is_remote(self._place):
            return held(open_store(self._place, self._of_files.values), "table")
        return LocalFiles(local_path(self._place), "table").locked(lambda: None)

    def _check_merged(self, before: int, after: int) -> None:
        """Raise `TableError` if another program has merged the same files as the version `after`.

        A version with the same new files is the library's own commit, which it repeats if a response is lost.
        """
        if after <= before + 1:
            return
        removed, added = (self._paths(after, action) for action in ("remove", "add"))
        for version in range(before + 1, after):
            if removed & self._paths(version, "remove") and not added & self._paths(version, "add"):
                raise TableError(
                    f"{self._place}: another program has merged the same files at the same time, so rows are in the"
                    f" table twice since version {after}: stop its writers, restore version {after - 1} with deltalake,"
                    " and run the command again"
                )

    def _paths(self, version: int, action: str) -> set[str]:
        """Return the paths of the files that a commit has removed or added."""
        with self._listing().open_input_stream(f"{_LOG}/{version:020}.json") as file:
            actions = [json.loads(line) for line in file.read().splitlines()]
        return {one[action]["path"] for one in actions if action in one}

    def expire(self, age_s: int, now_ms: int) -> Expired:
        """Remove replaced files. The library counts in hours, so the age is rounded up.

        The library's number of removed files includes those that an earlier call has removed.
        """
        hours = -(-age_s // _HOUR_S)
        orphan_hours = max(hours, ORPHAN_S // _HOUR_S)
        with self._reported():
            before = self._files()
            table = self.newest()
            table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
            table.vacuum(orphan_hours, dry_run=False, enforce_retention_duration=False, full=True)
            return Expired(None, len(before - self._files()))

    def _files(self) -> set[str]:
        """Return the paths of all files in the table's directory, without those of its log."""
        found = self._listing().get_file_info(fs.FileSelector("", recursive=True))
        return {one.path for one in found if one.is_file and not one.path.startswith(f"{_LOG}/")}

    def _listing(self) -> fs.FileSystem:
        """Return the file system whose root is the table's directory."""
        library = import_module("deltalake.fs")
        return fs.PyFileSystem(library.DeltaStorageHandler(self._place, self._storage))


def _headline(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _schema(table: Any) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _in_order(table: pa.Schema, rows: pa.Schema) -> Iterator[pa.Field]:
    """Yield the columns of the rows with the names and types of the table."""
    names = {field.name.lower(): field for field in table}
    for field in rows:
        found = names[field.name.lower()]
        yield pa.field(found.name, field.type, found.nullable)


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


def _columns_of_files(columns: pa.Schema, rules: Sequence[PartitionRule]) -> pa.Schema:
    left_out = set(_partition_columns(rules))
    files = [field for field in columns if field.name not in left_out]
    if not files:
        raise ConfigError(
            "partition_by: at least one column must be left for the files; leave out a column"
        )
    return pa.schema(files)


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
