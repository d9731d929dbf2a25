"""The definition of a pipeline in a TOML file: sources, SQL steps and a sink.

Invariant: in every `Definition` that `parse` returns, the options of the sources and the sink are valid, names are
unique, and every key of the file has an effect. The SQL is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.base.toml import read_toml
from minikafka.spark.lakehouse.opening import check_table
from minikafka.spark.lakehouse.tables import FORMATS as LAKES
from minikafka.spark.option_map import SERVERS
from minikafka.spark.parquet.table_directory import TableDirectory
from minikafka.spark.pipelines.run.lakes import LakeSink, lake_sink
from minikafka.spark.pipelines.run.toml_table import TomlTable, shown
from minikafka.spark.pipelines.streams.streams import (
    MAX_OFFSETS_PER_TRIGGER,
    Trigger,
    parse_trigger,
)
from minikafka.spark.registry import options as registry_options
from minikafka.spark.registry.records import RecordReading
from minikafka.spark.security_options import NAMES, connection_of
from minikafka.spark.sink import options as sink_options
from minikafka.spark.sink.options import TOPIC
from minikafka.spark.source import options as source_options
from minikafka.spark.source.options import Mode
from minikafka.spark.storage.locations import check_checkpoint, check_directory

FORMATS: Final = ("raw", "string", "json", "csv", *registry_options.FORMATS)
OUTPUT_MODES: Final = ("append", "update", "complete")
SAVE_MODES: Final = ("append", "overwrite", "error")
CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DELAY: Final = re.compile(
    r"(?:\s*[0-9]+ +(?:(?:micro|milli)?second|minute|hour|day|week|month|year)s?\b)+\s*",
    re.IGNORECASE,
)
_SELECTIONS: Final = {"subscribe": "topic", "subscribePattern": "pattern", "assign": "assign"}
"""The data source's options that select topics. The values are the names of these options in the TOML file."""
_SELECTED: Final = re.compile(rf"\boption ({'|'.join(_SELECTIONS)})\b")
_SUBSCRIBE: Final = "subscribe"
_API_TIMEOUT: Final = "kafka.default.api.timeout.ms"
_DELIVERY_TIMEOUT: Final = "kafka.delivery.timeout.ms"


@dataclass(frozen=True)
class Decode:
    """How the bytes of a record are decoded to columns. `schema`: a schema in Spark's DDL, for json and csv.

    `options`: options for Spark's functions from_json and from_csv, or those of a schema registry. `reading`: the
    schema of the registry, which a run requests at its start.
    """

    format: str = "raw"
    schema: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    reading: RecordReading | None = None

    @property
    def uses_registry(self) -> bool:
        """True if the schemas of the records are in a schema registry."""
        return self.format in registry_options.FORMATS

    @property
    def finds_malformed(self) -> bool:
        """True if the view has the column `_malformed`."""
        return self.uses_registry or bool(self.schema)


@dataclass(frozen=True)
class Encode:
    """How the columns of a row become a record. `key`: the column that provides the record's key as text.

    `options`: those of a schema registry.
    """

    format: str
    key: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EncodeKey:
    """How a column that is not in the value, or a struct of columns that are, becomes the key of a record."""

    format: str
    options: Mapping[str, str]
    column: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Watermark:
    """The column with the event time, and the maximum delay of an event."""

    column: str
    delay: str


@dataclass(frozen=True)
class SourceView:
    """A view over topics. `options`: the options of the data source.

    `decode_key`: how keys are decoded; None leaves them as they are. `dead_letter`: the topic to which malformed
    records go instead of the view.
    """

    name: str
    options: Mapping[str, str]
    decode: Decode = field(default_factory=Decode)
    watermark: Watermark | None = None
    dead_letter: str | None = None
    decode_key: Decode | None = None

    @property
    def finds_malformed(self) -> bool:
        """True if the view has the column `_malformed`."""
        return self.decode.finds_malformed or self.decode_key is not None


@dataclass(frozen=True)
class Step:
    """A view defined by a query over sources and the steps above it. `watermark`: the watermark of the view.

    `drop_duplicates`: columns. Rows with equal values in them are duplicates, of which the view has the first
    within the watermark. If empty, the view has all rows.
    """

    name: str
    sql: str
    watermark: Watermark | None = None
    drop_duplicates: tuple[str, ...] = ()


@dataclass(frozen=True)
class TopicSink:
    """A sink that writes records to a topic. `encode`: write all columns as the value; None if they are a record.

    `encode_key`: how the key is encoded with a schema of a registry; None if it is not.
    """

    options: Mapping[str, str]
    mode: str = "append"
    encode: Encode | None = None
    encode_key: EncodeKey | None = None


@dataclass(frozen=True)
class ParquetSink:
    """A sink that writes files to a path or URI, with a subdirectory per value of the columns `partition_by`."""

    path: str
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store of a URI. They may be secrets."""


@dataclass(frozen=True)
class ConsoleSink:
    """Standard output as a sink: at most `rows` rows of a table, or of each micro-batch of a stream."""

    rows: int = 20
    mode: str = "append"


Sink: TypeAlias = TopicSink | ParquetSink | LakeSink | ConsoleSink


@dataclass(frozen=True)
class Definition:
    """The definition of a pipeline. `trigger`: None runs one batch query without a checkpoint."""

    name: str
    sources: tuple[SourceView, ...]
    steps: tuple[Step, ...]
    sink: Sink
    trigger: Trigger | None
    checkpoint: str | None


@dataclass(frozen=True)
class Overrides:
    """Values from the command line. The trigger and the checkpoint override the values in the file."""

    servers: Callable[[], str]
    """Returns the bootstrap servers for sources and sinks that name no brokers."""
    trigger: Trigger | None = None
    checkpoint: str | None = None
    security: Callable[[], Mapping[str, str]] = dict
    """Returns the options that protect the connections to these servers."""

    def connection(self) -> dict[str, str]:
        """Return the options that say how sources and sinks that name no brokers connect."""
        return {SERVERS: self.servers(), **self.security()}


def brokers_at_start(definition: Definition, security: Mapping[str, str]) -> list[str]:
    """Return the bootstrap servers that must answer before the pipeline starts.

    Servers of a source or sink with its own timeout are left out, because these brokers may start later, and also
    those of a source or sink that connects in another way than with `security`.
    """
    used = [one.options for one in definition.sources if _API_TIMEOUT not in one.options]
    sink = definition.sink
    if isinstance(sink, TopicSink) and _DELIVERY_TIMEOUT not in sink.options:
        used.append(sink.options)
    return [options[SERVERS] for options in used if _connects_with(options, security)]


def _connects_with(options: Mapping[str, str], security: Mapping[str, str]) -> bool:
    return connection_of(options) == {SERVERS: options[SERVERS], **security}


def topics_at_start(
    definition: Definition, security: Mapping[str, str]
) -> list[tuple[str, list[str]]]:
    """Return the topics that must exist before the pipeline starts, each list with its bootstrap servers.

    Sources and sinks that `brokers_at_start` leaves out are left out, sources that subscribe to a pattern, and a sink
    that creates its topic.
    """
    checked = [
        one
        for one in definition.sources
        if _API_TIMEOUT not in one.options and _connects_with(one.options, security)
    ]
    found = [(one.options[SERVERS], _topics(one)) for one in checked if _SUBSCRIBE in one.options]
    found += [(one.options[SERVERS], [one.dead_letter]) for one in checked if one.dead_letter]
    sink = definition.sink
    if (
        isinstance(sink, TopicSink)
        and _DELIVERY_TIMEOUT not in sink.options
        and _connects_with(sink.options, security)
    ):
        given = sink_options.parse(sink.options)
        if given.topic and not given.creates_topics:
            found.append((sink.options[SERVERS], [given.topic]))
    return found


def check_sink(definition: Definition) -> None:
    """Raise `TableError` if the catalog or the place of the sink's table does not answer."""
    if isinstance(definition.sink, LakeSink):
        check_table(definition.sink.settings)


def _topics(source: SourceView) -> list[str]:
    return [name.strip() for name in source.options[_SUBSCRIBE].split(",")]


def parse(text: str, file: str, given: Overrides) -> Definition:
    """Return the pipeline that a TOML text defines. Raises ConfigError with the file, table and key."""
    try:
        document = read_toml(text)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    top = TomlTable(file, document)
    head = _part(top, "pipeline")
    name = head.text("name")
    trigger = _trigger(head, given)
    of_file = head.optional("checkpoint")
    checkpoint = given.checkpoint or of_file
    head.finish()
    sources = _sources(top, trigger, given)
    steps = _steps(top, trigger, [one for one in sources if one.watermark])
    views: list[SourceView | Step] = [*sources, *steps]
    _check_names(file, views)
    sink = _sink(_part(top, "sink"), trigger, given)
    _check_loop(file, sources, sink)
    _check_dead_letters(file, sources, sink)
    top.finish()
    if trigger is None and any(view.watermark for view in views):
        raise top.error('a watermark has no effect with the trigger "batch": remove it')
    _check_checkpoint(head, trigger, checkpoint, sink)
    _checked(head, lambda: check_checkpoint(checkpoint, _path(sink)))
    if len(sources) > 1 and not steps:
        raise ConfigError(f"{file}: {len(sources)} sources need a [[step]] that joins them")
    return Definition(name, sources, steps, sink, trigger, checkpoint)


def _part(top: TomlTable, name: str) -> TomlTable:
    found = top.table(name)
    if found is None:
        raise top.error(f"the table [{name}] is missing")
    return TomlTable(f"{top.where}, [{name}]", found.values)


def _trigger(head: TomlTable, given: Overrides) -> Trigger | None:
    text = head.optional("trigger") or "available-now"
    if given.trigger is not None:
        return given.trigger
    try:
        return parse_trigger(text)
    except ConfigError as error:
        raise head.error(str(error)) from error


def _check_checkpoint(
    head: TomlTable, trigger: Trigger | None, checkpoint: str | None, sink: Sink
) -> None:
    if trigger is None and checkpoint:
        raise head.error('checkpoint has no effect with the trigger "batch": remove it')
    if trigger is not None and not checkpoint and not isinstance(sink, ConsoleSink):
        raise head.error("checkpoint is missing: name a directory, or --checkpoint DIR")


def _path(sink: Sink) -> str | None:
    """Return the path or URI of the sink's files; None if it has none, or if a catalog chooses it."""
    if isinstance(sink, LakeSink):
        return sink.settings.place or None
    return sink.path if isinstance(sink, ParquetSink) else None


def _sources(top: TomlTable, trigger: Trigger | None, given: Overrides) -> tuple[SourceView, ...]:
    tables = top.table("source")
    if tables is None or not tables.values:
        raise top.error("a table [source.NAME] is missing")
    found = []
    for name, values in tables.values.items():
        table = TomlTable(f"{top.where}, [source.{name}]", values)
        found.append(_source(name, table, trigger, given))
    return tuple(found)


def _source(name: str, table: TomlTable, trigger: Trigger | None, given: Overrides) -> SourceView:
    topics, pattern = table.texts("topic"), table.optional("pattern")
    decode = _decode(table.table("decode"), topics) or Decode()
    decode_key = _decode(table.table("decode_key"), topics, "key")
    watermark = _watermark(table.table("watermark"))
    dead_letter = table.optional("dead_letter")
    if dead_letter:
        decode, decode_key = _for_dead_letters(table, decode, decode_key)
    options = source_defaults(trigger) | table.options([*source_options.DEFAULTS, *NAMES])
    if topics:
        options["subscribe"] = ",".join(topics)
    if pattern:
        options["subscribePattern"] = pattern
    if SERVERS not in options:
        options = given.connection() | options
    chosen = [key for option, key in _SELECTIONS.items() if option in options]
    if not chosen:
        raise table.error("topic is missing: name a topic, a list of topics, or a pattern")
    if len(chosen) > 1:
        raise table.error(f"{' and '.join(chosen)} exclude each other: remove one")
    try:
        source_options.parse(options, Mode.STREAM if trigger else Mode.BATCH)
    except ConfigError as error:
        raise table.error(_SELECTED.sub(_key_of, str(error))) from error
    return SourceView(name, options, decode, watermark, dead_letter, decode_key)


def _key_of(option: re.Match[str]) -> str:
    """Return the key for a data source's option that selects topics."""
    return _SELECTIONS[option[1]]


def _for_dead_letters(
    table: TomlTable, decode: Decode, decode_key: Decode | None
) -> tuple[Decode, Decode | None]:
    """Return how records are decoded if malformed ones go to a topic. Raises ConfigError if none are malformed."""
    if not decode.finds_malformed and decode_key is None:
        raise table.error(
            f'dead_letter has no effect with the format "{decode.format}", in which no record is malformed:'
            " remove it, or decode json or csv with a schema"
        )
    return _permissive(table, decode), decode_key and _permissive(table, decode_key)


def _permissive(table: TomlTable, decode: Decode) -> Decode:
    if not decode.uses_registry:
        return decode
    if decode.options.get(registry_options.MODE, "").lower() == "failfast":
        raise table.error('dead_letter and the mode "failfast" exclude each other: remove one')
    return replace(decode, options={**decode.options, registry_options.MODE: "permissive"})


def _check_loop(file: str, sources: Sequence[SourceView], sink: Sink) -> None:
    """Raise ConfigError if the sink writes to a topic that a source reads: each run would read its own rows again."""
    if not isinstance(sink, TopicSink) or not (topic := sink.options.get(TOPIC)):
        return
    for one in sources:
        read = source_options.parse(one.options).subscription.names([topic])
        if topic in read and one.options[SERVERS] == sink.options[SERVERS]:
            raise ConfigError(
                f"{file}, [sink]: the source {one.name} reads the topic {topic}: name another topic"
            )


def _check_dead_letters(file: str, sources: Sequence[SourceView], sink: Sink) -> None:
    """Raise ConfigError if a topic for dead letters is read by a source or written by the sink."""
    for one in sources:
        if one.dead_letter is None:
            continue
        where = f"{file}, [source.{one.name}]: dead_letter"
        if isinstance(sink, TopicSink) and sink.options.get(TOPIC) == one.dead_letter:
            raise ConfigError(f"{where}: the sink writes to {one.dead_letter}: name another topic")
        for other in sources:
            read = source_options.parse(other.options).subscription.names([one.dead_letter])
            if one.dead_letter in read:
                raise ConfigError(
                    f"{where}: the source {other.name} reads {one.dead_letter}: name another topic"
                )


def source_defaults(trigger: Trigger | None) -> dict[str, str]:
    """Return the default values of source options that pipelines use instead of the data source's own defaults."""
    found = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    return found | ({"maxOffsetsPerTrigger": MAX_OFFSETS_PER_TRIGGER} if trigger else {})


def _checked(table: TomlTable, check: Callable[[], object]) -> None:
    try:
        check()
    except ConfigError as error:
        raise table.error(str(error)) from error


def _decode(table: TomlTable | None, topics: Sequence[str], part: str = "value") -> Decode | None:
    if table is None:
        return None
    kind = table.choice("format", FORMATS if part == "value" else registry_options.FORMATS)
    if kind in ("raw", "string"):
        table.finish()
        return Decode(kind)
    if kind in registry_options.FORMATS:
        given = table.options(registry_options.DECODE)
        found = registry_options.with_topic(given, topics[0] if len(topics) == 1 else None)
        _checked(table, lambda: registry_options.parse_decode(kind, found, part))
        return Decode(kind, options=found)
    schema = table.text("schema")
    options = table.table("options")
    table.finish()
    texts = {key: str(value) for key, value in (options.values if options else {}).items()}
    return Decode(kind, schema, texts)


def _watermark(table: TomlTable | None) -> Watermark | None:
    if table is None:
        return None
    found = Watermark(table.text("column"), table.text("delay"))
    if not _DELAY.fullmatch(found.delay):
        raise table.error(f'delay must be a time such as "10 seconds", not {shown(found.delay)}')
    table.finish()
    return found


def _steps(
    top: TomlTable, trigger: Trigger | None, with_watermark: Sequence[SourceView]
) -> tuple[Step, ...]:
    found: list[Step] = []
    for number, values in enumerate(top.tables("step"), 1):
        table = TomlTable(f"{top.where}, [[step]] {number}", values)
        name, sql = table.text("name"), table.text("sql")
        watermark = _watermark(table.table("watermark"))
        columns = table.texts("drop_duplicates")
        table.finish()
        if "drop_duplicates" in table:
            any_before = with_watermark or any(step.watermark for step in found)
            _check_duplicates(table, columns, trigger, has_watermark=bool(watermark or any_before))
        found.append(Step(name, sql, watermark, columns))
    return tuple(found)


def _check_duplicates(
    table: TomlTable, columns: tuple[str, ...], trigger: Trigger | None, *, has_watermark: bool
) -> None:
    if not columns:
        raise table.error("drop_duplicates names no column: name those whose values identify a row")
    if trigger is None:
        raise table.error(
            'drop_duplicates needs a stream: with the trigger "batch", use select distinct or'
            " row_number() in the sql"
        )
    if not has_watermark:
        raise table.error(
            "drop_duplicates needs a watermark, which limits how long a row is remembered: add"
            ' watermark = { column = "…", delay = "…" }'
        )


def _check_names(file: str, views: Sequence[SourceView | Step]) -> None:
    seen: set[str] = set()
    for view in views:
        if not _NAME.fullmatch(view.name):
            raise ConfigError(
                f"{file}: the name {shown(view.name)} must be letters, digits and _, for use in SQL"
            )
        if view.name.lower() in seen:
            raise ConfigError(f"{file}: two sources or steps have the name {view.name}")
        seen.add(view.name.lower())


def _sink(table: TomlTable, trigger: Trigger | None, given: Overrides) -> Sink:
    kind = table.choice("kind", ("topic", "parquet", *LAKES, "console"))
    if kind == "topic":
        return _topic_sink(table, trigger, given)
    modes = ("append",) if trigger else SAVE_MODES
    if kind in LAKES:
        return lake_sink(table, kind, modes, CODECS)
    if kind == "parquet":
        path, columns = table.text("path"), table.texts("partition_by")
        storage = table.mapping("storage")
        _checked(table, lambda: TableDirectory(path, storage))
        _checked(table, lambda: check_directory("path", path))
        _check_partition_columns(table, columns)
        mode = table.choice("mode", modes, "append")
        codec = table.choice("compression", CODECS, "zstd")
        table.finish()
        return ParquetSink(path, mode, columns, codec, storage)
    rows, mode = table.positive("rows", 20), _output_mode(table, trigger)
    table.finish()
    return ConsoleSink(rows, mode)


def _output_mode(table: TomlTable, trigger: Trigger | None) -> str:
    if trigger is None and "mode" in table:
        raise table.error('mode has no effect with the trigger "batch": remove it')
    return table.choice("mode", OUTPUT_MODES, "append")


def _check_partition_columns(table: TomlTable, columns: tuple[str, ...]) -> None:
    if hidden := [name for name in columns if name[:1] in ("_", ".")]:
        raise table.error(
            f"partition_by: {hidden[0]} would name directories that readers ignore, because they begin with"
            f" {hidden[0][0]}: give the column another name in a step"
        )
    if len({name.lower() for name in columns}) < len(columns):
        raise table.error("partition_by names a column twice")


def _topic_sink(table: TomlTable, trigger: Trigger | None, given: Overrides) -> TopicSink:
    mode = _output_mode(table, trigger)
    encode, encode_key = table.table("encode"), table.table("encode_key")
    options = table.options([*sink_options.DEFAULTS, *NAMES])
    if SERVERS not in options:
        options = given.connection() | options
    _checked(table, lambda: sink_options.parse(options))
    topic = options.get(TOPIC)
    value = None if encode is None else _encode(encode, topic)
    if encode_key is None:
        return TopicSink(options, mode, value)
    if value is None:
        raise encode_key.error("encode is missing: without it, rows must be records with a key")
    if value.key is not None:
        raise encode_key.error("the key of encode and encode_key exclude each other: remove one")
    return TopicSink(options, mode, value, _encode_key(encode_key, topic))


def _encode(table: TomlTable, topic: str | None) -> Encode:
    kind = table.choice("format", ("json", *registry_options.FORMATS))
    key = table.optional("key")
    if kind == "json":
        table.finish()
        return Encode(kind, key)
    return Encode(kind, key, _encode_options(table, kind, topic, "value"))


def _encode_key(table: TomlTable, topic: str | None) -> EncodeKey:
    kind = table.choice("format", registry_options.FORMATS)
    column, columns = table.optional("column"), table.texts("columns")
    if (column is None) == (not columns):
        raise table.error('name the key: either column = "NAME" or columns = ["NAME", …]')
    return EncodeKey(kind, _encode_options(table, kind, topic, "key"), column, columns)


def _encode_options(table: TomlTable, kind: str, topic: str | None, part: str) -> dict[str, str]:
    found = registry_options.with_topic(table.options(registry_options.ENCODE), topic)
    _checked(table, lambda: registry_options.parse_encode(kind, found, part))
    return found
