"""Tables of Apache Iceberg, through the library pyiceberg, which needs no Java.

A mark is a property of the table, which changes in the same commit as the snapshot. The summary of the snapshot has the
marks too. Without properties of a catalog, the catalog is the SQLite file `catalog.db` in the table's directory, and
`metadata/version-hint.text` names the newest metadata for readers that know only the directory.
"""

from __future__ import annotations

import io
import os
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.lakehouse import iceberg_upkeep as upkeep
from minikafka.spark.lakehouse.columns import Evolution, evolution
from minikafka.spark.lakehouse.places import (
    NO_OPTIONS,
    absolute,
    check_unused,
    check_uri,
    file_uri,
    is_remote,
    local_path,
    refusal,
    storage_of,
)
from minikafka.spark.lakehouse.rules import DATE, HOUR, PartitionRule, check_rules
from minikafka.spark.lakehouse.stage import LakeFile
from minikafka.spark.lakehouse.tables import (
    COMMIT,
    ORPHAN_S,
    Expired,
    LakeSettings,
    Layout,
    Marks,
    MergedFiles,
    NoAnswer,
    NoLibrary,
    NotCommitted,
    Overtaken,
    TableChange,
    TableError,
    commit_once,
    patiently,
)

CATALOG_FILE: Final = "catalog.db"
_OWN: Final = (CATALOG_FILE, f"{CATALOG_FILE}-journal", "metadata")
"""What the directory of a table holds if its creation was interrupted."""
_CATALOG: Final = "default"
"""The name of the catalog, under which pyiceberg also finds the settings of the user's own file."""
_PROPERTIES: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
_VERSION_MAX: Final = 2
_ANSWER_S: Final = 60
"""Maximum time to wait for an answer of a REST catalog."""
_NO_ANSWER: Final = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Timeout")
_OF_STORES: Final = {
    "s3.connect-timeout": "20",
    "s3.request-timeout": "60",
    "s3.retry-strategy-impl": f"{upkeep.__name__}.{upkeep.retries.__name__}",
    "py-io-impl": "minikafka.spark.lakehouse.iceberg_files.TableFiles",
}
"""Defaults of properties. Those of pyarrow, 1 and 3 seconds and 3 attempts, fail on a busy machine."""
_ACCOUNT: Final = re.compile(r"abfss?://[^/@]+@(?P<name>[^/.]+)\.")
"""The beginning of a URI of Azure with the name of the account."""
_UNSURE: Final = (
    *(*_NO_ANSWER, "ChunkedEncodingError", "CommitStateUnknownException", "ServerError"),
    *("ServiceUnavailableError", "TooManyRequestsError"),
)
"""Errors after which a request may be repeated. A commit may have been made."""
_LOCKED: Final = "database is locked"
"""What SQLite says while another process writes the catalog."""
_RETRIES: Final = "commit.retry.num-retries"
_TRANSFORMS: Final = {"identity", "day", "hour"}
"""The transforms of the partitionings that `partition_by` can name."""
_EPOCH: Final = date(1970, 1, 1)


class IcebergTable:
    """A table of Iceberg in a catalog."""

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._place = absolute(settings.place) if settings.place else ""
        if not all(part.strip() for part in settings.name.rpartition(".")):
            raise ConfigError(f"table must be NAMESPACE.NAME, not {settings.name!r}")
        try:
            self._library = import_module("pyiceberg.catalog")
            self._errors = import_module("pyiceberg.exceptions")
            if not settings.catalog:
                import_module("sqlalchemy")
        except ModuleNotFoundError as error:
            raise NoLibrary(
                f"the format iceberg needs {error.name}: pip install 'minikafka[iceberg]'"
            ) from error
        if is_remote(self._place):
            check_uri(self._place, storage_of(self._place, settings.catalog).names)
        if not settings.catalog and is_remote(self._place):
            raise ConfigError(
                f"{self._place}: a table in an object storage needs a catalog: name its properties, such as uri"
            )
        self._known: Any = None
        self._spec_id: int | None = None
        """The partitioning for which the files of the next commit were written."""

    def _catalog(self) -> Any:
        """Return the catalog. Raises `TableError` if it does not answer."""
        if self._known is None:
            given = self._properties()
            name = given.pop("name", _CATALOG)
            if not self._settings.catalog:
                given = {
                    "type": "sql",
                    "uri": f"sqlite:///{self._local}/{CATALOG_FILE}",
                    "warehouse": file_uri(self._local),
                }
            with self._reported():
                if not self._settings.catalog:
                    os.makedirs(self._local, exist_ok=True)
                _check_answer(given)
                self._known = self._library.load_catalog(name, **given)
            weakref.finalize(self, self._known.close)
            _limit_waiting(self._known)
        return self._known

    def _properties(self) -> dict[str, str]:
        """Return the properties of the catalog, with the one that pyarrow needs for a URI of Azure."""
        account = _ACCOUNT.match(self._place)
        of_account = {"adls.account-name": account["name"]} if account else {}
        return _OF_STORES | of_account | dict(self._settings.catalog)

    @property
    def _local(self) -> str:
        """The path of the table's directory, without a catalog of the user."""
        return local_path(self._place)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise every error of the catalog and of its network as `TableError` with a text of one line."""
        try:
            yield
        except MinikafkaError:
            raise
        except Exception as error:  # catalogs raise errors of many libraries
            is_passing = type(error).__name__ in _UNSURE or _LOCKED in str(error)
            kind = NoAnswer if is_passing else TableError
            raise kind(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        settings = self._settings
        if (
            isinstance(error, OSError)
            and type(error).__module__ == "builtins"
            and is_remote(self._place)
        ):
            return f"{refusal(self._place, self._properties(), error)}; a restart continues, and adds each row once"
        where = settings.catalog_shown if settings.catalog else f"{self._place}/{CATALOG_FILE}"
        name = type(error).__name__
        if name in _NO_ANSWER:
            text = "does not answer: check its address and credentials, and that it runs"
        else:
            reason = (str(error).splitlines() or [""])[0] or name
            text = f"cannot be used for the table {settings.name} ({name}: {reason}): correct this"
        return f"catalog: {where} {text}; a restart continues, and adds each row once"

    def exists(self) -> bool:
        """True if the table is in the catalog."""
        if not self._settings.catalog and not os.path.exists(f"{self._local}/{CATALOG_FILE}"):
            return False
        catalog = self._catalog()
        with self._reported():
            return bool(catalog.table_exists(self._settings.name))

    def newest(self) -> Any:
        """Return the newest state of the table.

        The library must not repeat a commit: it would add the files of a micro-batch again after those of another
        driver. The setting is not written to the table.
        """
        catalog = self._catalog()
        with self._reported():
            table = catalog.load_table(self._settings.name)
        table.metadata.properties[_RETRIES] = "0"
        return table

    def prepare(
        self, rows: pa.Schema, marks: Marks | None = None, *, may_lack: bool = False
    ) -> Layout:
        """Create the table with these marks, or add the columns that it lacks and widen those with a wider type."""
        return patiently(partial(self._prepared, rows, _texts(marks or {}), may_lack))

    def _prepared(self, rows: pa.Schema, marks: Mapping[str, str], may_lack: bool) -> Layout:
        shown = self._settings.shown
        rules = check_rules(self._settings.partition_by, rows)
        if not self.exists():
            self._create(rows, rules, marks)
        table = self.newest()
        self._check_version(table)
        self._check_partitioning(table, rules)
        change = evolution(_schema(table), rows, shown, can_widen=True, may_lack=may_lack)
        if change.added or change.widened:
            self._evolve(table, change)
            table = self.newest()
        self._spec_id = table.metadata.default_spec_id
        return _layout(table, rows, rules)

    def _create(
        self, rows: pa.Schema, rules: Sequence[PartitionRule], marks: Mapping[str, str]
    ) -> None:
        catalog = self._catalog()
        location = file_uri(self._place) if self._place else None
        if location and not is_remote(location):
            check_unused(self._local, NO_OPTIONS, _OWN, self.exists)
        with self._committing():
            catalog.create_namespace_if_not_exists(self._settings.name.rpartition(".")[0])
            creating = catalog.create_table_transaction(
                self._settings.name, rows, location=location, properties={**_PROPERTIES, **marks}
            )
            with creating as transaction, transaction.update_spec() as spec:
                for rule in rules:
                    spec.add_field(rule.column, *_transform(rule))
        self._hint()

    def _check_version(self, table: Any) -> None:
        if table.metadata.format_version > _VERSION_MAX:
            raise ConfigError(
                f"{self._settings.shown} has the format version {table.metadata.format_version}, and pyiceberg can only"
                f" write versions up to {_VERSION_MAX}: name a new table"
            )

    def _check_partitioning(self, table: Any, rules: Sequence[PartitionRule]) -> None:
        schema = table.schema()
        found = [
            (schema.find_column_name(one.source_id), str(one.transform))
            for one in table.spec().fields
        ]
        wanted = [(rule.column, str(_transform(rule)[0])) for rule in rules]
        if [(name.lower(), how) for name, how in wanted] != [
            (name.lower(), how) for name, how in found
        ]:
            is_possible = {how for _, how in found} <= _TRANSFORMS
            remedy = (
                "set the same partitioning, or name" if is_possible else "it cannot be set: name"
            )
            raise ConfigError(
                f"partition_by: {self._settings.shown} is partitioned by {_listed(found)}, not by {_listed(wanted)}:"
                f" {remedy} a new table"
            )

    def _evolve(self, table: Any, change: Evolution) -> None:
        schemas = import_module("pyiceberg.io.pyarrow")
        added = schemas._pyarrow_to_schema_without_ids(pa.schema([*change.added, *change.widened]))
        with self._committing(), table.update_schema() as update:
            update.union_by_name(added)
        self._hint()

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """Return the marks that the table has."""
        return self.marks_in(self.newest(), names) if self.exists() else {}

    def marks_in(self, state: Any, names: Sequence[str]) -> dict[str, int]:
        """Return the marks of a state."""
        return {name: int(state.properties[name]) for name in names if name in state.properties}

    def has_commit(self, state: Any, unique: str) -> bool:
        """True if a snapshot has this note."""
        return any(
            one.summary is not None and one.summary.additional_properties.get(COMMIT) == unique
            for one in state.metadata.snapshots
        )

    def commit(self, change: TableChange) -> None:
        """Add files and set marks in one step."""
        commit_once(self, change, self._settings.shown, self._attempt)
        self._hint()

    def _attempt(self, state: Any, change: TableChange) -> None:
        replaced = list(_files(state)) if change.overwrite else []
        self._replace(state, change, replaced)

    def _replace(self, state: Any, change: TableChange, replaced: Sequence[Any]) -> None:
        """Make a change, and remove the replaced files in the same step."""
        self._check_spec(state)
        texts = _texts(change.marks)
        added = [_data_file(state, one) for one in change.files]
        with self._committing(), state.transaction() as transaction:
            if texts:
                transaction.set_properties(texts)
            update = transaction.update_snapshot(snapshot_properties={**change.notes, **texts})
            is_append = not (replaced or change.overwrite)
            with update.merge_append() if is_append else update.overwrite() as snapshot:
                for file in replaced:
                    snapshot.delete_data_file(file)
                for file in added:
                    snapshot.append_data_file(file)

    def _check_spec(self, state: Any) -> None:
        if state.metadata.default_spec_id != self._spec_id:
            raise Overtaken(
                f"partition_by: another process has changed the partitioning of {self._settings.shown} at the same"
                " time: set the same partitioning, or name a new table"
            )

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Raise the library's error for a lost race as `NotCommitted`, and every other error as `_reported`."""
        lost = None
        with self._reported():
            try:
                yield
            except (
                self._errors.CommitFailedException,
                self._errors.TableAlreadyExistsError,
            ) as error:
                lost = error
        if lost is not None:
            raise NotCommitted(self._sentence(lost)) from lost

    def compact(self, target_bytes: int) -> MergedFiles:
        """Merge small files. Readers of older snapshots still find the files that were merged."""
        table = self.newest()
        if table.current_snapshot() is None:
            return MergedFiles(0, 0)
        self._spec_id = table.metadata.default_spec_id
        directory = f"{local_path(table.location())}/data"
        with self._reported():
            groups = upkeep.small_files(table, target_bytes)
            files = [upkeep.merged(table, _schema(table), directory, tasks) for tasks in groups]
        old = [task.file for tasks in groups for task in tasks]
        if files:
            merge = partial(self._merge, replaced=old)
            commit_once(self, TableChange(files), self._settings.shown, merge)
            self._hint()
        return MergedFiles(len(old), len(files))

    def _merge(self, state: Any, change: TableChange, replaced: Sequence[Any]) -> None:
        """Replace files by merged ones, unless their rows have changed since they were read."""
        with self._reported():
            unchanged = upkeep.whole_files(state)
        if any(file.file_path not in unchanged for file in replaced):
            raise Overtaken(
                f"{self._settings.shown}: another process has merged files or deleted rows at the same time: run the"
                " command again"
            )
        self._replace(state, change, replaced)

    def expire(self, age_s: int, now_ms: int) -> Expired:
        """Remove the snapshots that were replaced more than `age_s` seconds ago, and the files that only they have."""
        table = self.newest()
        with self._reported():
            before = set().union(*upkeep.files_of(table))
        number = patiently(partial(self._expire_snapshots, now_ms - 1000 * age_s))
        table = self.newest()
        with self._reported():
            data, others = upkeep.files_of(table)
            lost = before - data - others
            lost |= upkeep.orphans(table, data | others, now_ms - 1000 * max(age_s, ORPHAN_S))
            return Expired(number, upkeep.remove(table, lost))

    def _expire_snapshots(self, limit_ms: int) -> int:
        """Remove the snapshots that were replaced before a time, and return their number."""
        table = self.newest()
        old = upkeep.replaced_before(table, limit_ms)
        if old:
            with self._committing():
                table.maintenance.expire_snapshots().by_ids(old).commit()
            self._hint()
        return len(old)

    def _hint(self) -> None:
        """Name the newest metadata in `version-hint.text`, for readers that know only the directory."""
        if self._settings.catalog:
            return
        table = self.newest()
        newest = local_path(table.metadata_location)
        folder, name = os.path.split(newest)
        draft = f"{folder}/version-hint.{os.urandom(8).hex()}"
        with open(draft, "w") as file:
            file.write(name.removesuffix(".metadata.json"))
        os.replace(draft, f"{folder}/version-hint.text")


def _check_answer(properties: Mapping[str, str]) -> None:
    """Raise requests.Timeout if a REST catalog accepts connections, but does not answer.

    The library itself would wait without a limit. It reports every other error.
    """
    uri = properties.get("uri", "")
    if not uri.startswith("http"):
        return
    requests = import_module("requests")
    try:
        requests.get(f"{uri.rstrip('/')}/v1/config", timeout=_ANSWER_S)
    except requests.Timeout:
        raise
    except requests.RequestException:
        return


def _limit_waiting(catalog: Any) -> None:
    """Let the requests to a REST catalog fail if there is no answer in time."""
    session = getattr(catalog, "_session", None)
    if session is not None:
        session.request = partial(session.request, timeout=_ANSWER_S)


def _layout(table: Any, rows: pa.Schema, rules: Sequence[PartitionRule]) -> Layout:
    known = {field.name.lower(): field for field in _schema(table)}
    columns = pa.schema([known[name.lower()] for name in rows.names])
    directory = f"{local_path(table.location())}/data"
    storage = storage_of(directory, table.io.properties)
    return Layout(tuple(columns.names), columns, check_rules(rules, columns), directory, storage)


def _texts(marks: Marks) -> dict[str, str]:
    """Return marks as properties of a table."""
    return {name: str(number) for name, number in marks.items()}


def _schema(table: Any) -> pa.Schema:
    """Return the columns of the table, with the ids of the fields in their metadata."""
    return table.schema().as_arrow()


def _transform(rule: PartitionRule) -> tuple[Any, str]:
    """Return the transform of Iceberg for a rule, and the name of the partition field."""
    transforms = import_module("pyiceberg.transforms")
    if rule.unit == DATE:
        return transforms.DayTransform(), f"{rule.column}_day"
    if rule.unit == HOUR:
        return transforms.HourTransform(), f"{rule.column}_hour"
    return transforms.IdentityTransform(), rule.column


def _listed(fields: Sequence[tuple[str, str]]) -> str:
    return (
        ", ".join(name if how == "identity" else f"{how}({name})" for name, how in fields)
        or "no column"
    )


def _files(table: Any) -> Iterator[Any]:
    """Yield the data files of the newest snapshot."""
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _data_file(table: Any, file: LakeFile) -> Any:
    """Return the entry of a file, with the bounds and counts of its columns from the file's footer."""
    manifest, typedef = import_module("pyiceberg.manifest"), import_module("pyiceberg.typedef")
    reading = import_module("pyiceberg.io.pyarrow")
    schema = table.schema()
    types = [schema.find_type(one.source_id) for one in table.spec().fields]
    values = (
        _partition_value(value, is_date=str(kind) == "date")
        for value, kind in zip(file.key, types, strict=True)
    )
    statistics = reading.data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(io.BytesIO(file.footer)),
        stats_columns=reading.compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=reading.parquet_path_to_id_mapping(schema),
    )
    return manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=file_uri(file.path),
        file_format=manifest.FileFormat.PARQUET,
        partition=typedef.Record(*values),
        file_size_in_bytes=file.bytes,
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _partition_value(value: object, *, is_date: bool) -> object:
    """Return a partition value as manifests store it: a date, also as text, as days since 1970."""
    if is_date and isinstance(value, str):
        value = date.fromisoformat(value)
    return (value - _EPOCH).days if isinstance(value, date) else value
