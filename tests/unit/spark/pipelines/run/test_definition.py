"""Pipelines described in TOML: accepted files, and errors that name the table, the key and the fix."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.run.definition import (
    ConsoleSink,
    Decode,
    Definition,
    Encode,
    EncodeKey,
    Overrides,
    ParquetSink,
    SourceView,
    Step,
    TopicSink,
    Watermark,
    parse,
    topics_at_start,
)
from minikafka.spark.pipelines.streams.streams import CONTINUOUS, Trigger

GIVEN = Overrides(lambda: "127.0.0.1:9092")
PIPELINE = """
[pipeline]
name = "clicks"
checkpoint = "clicks.checkpoint"
"""
SOURCE = """
[source.clicks]
topic = "clicks"
"""
SINK = """
[sink]
kind = "parquet"
path = "clicks.parquet"
"""


def parsed(text: str, given: Overrides = GIVEN) -> Definition:
    return parse(text, "f.toml", given)


def test_pipeline_file_with_only_the_required_keys_gets_the_defaults():
    [source] = parsed(PIPELINE + SOURCE + SINK).sources
    assert source.options == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "subscribe": "clicks",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "maxOffsetsPerTrigger": "1000000",
    }
    assert parsed(PIPELINE + SOURCE + SINK) == Definition(
        name="clicks",
        sources=(source,),
        steps=(),
        sink=ParquetSink("clicks.parquet"),
        trigger=Trigger(),
        checkpoint="clicks.checkpoint",
    )


def test_every_key_of_a_pipeline_file_is_read():
    found = parsed(
        """
        [pipeline]
        name = "joined"
        checkpoint = "c"
        trigger = "processing-time 10 seconds"
        [source.clicks]
        topic = ["a", "b"]
        decode = { format = "json", schema = "user string, ts timestamp", options = { timestampFormat = "yyyy" } }
        watermark = { column = "ts", delay = "1 minute" }
        dead_letter = "rejected"
        maxOffsetsPerTrigger = 10
        kafka.isolation.level = "read_uncommitted"
        startingOffsets = { a = { 0 = 5 }, b = { 0 = -2 } }
        [source.users]
        pattern = "users-.*"
        "kafka.bootstrap.servers" = "127.0.0.1:9192"
        decode = { format = "string" }
        [[step]]
        name = "joined"
        sql = "select 1"
        watermark = { column = "ts", delay = "5 seconds" }
        drop_duplicates = ["user", "ts"]
        [sink]
        kind = "topic"
        topic = "out"
        mode = "update"
        encode = { format = "json", key = "user" }
        kafka.compression.type = "zstd"
        """
    )
    clicks, users = found.sources
    watermark = Watermark("ts", "1 minute")
    schema = "user string, ts timestamp"
    assert clicks == SourceView(
        "clicks",
        clicks.options,
        Decode("json", schema, {"timestampFormat": "yyyy"}),
        watermark,
        "rejected",
    )
    assert clicks.options["subscribe"] == "a,b"
    assert clicks.options["kafka.isolation.level"] == "read_uncommitted"
    assert clicks.options["maxOffsetsPerTrigger"] == "10"
    assert clicks.options["startingOffsets"] == '{"a": {"0": 5}, "b": {"0": -2}}'
    assert users.decode == Decode("string")
    assert users.options["subscribePattern"] == "users-.*"
    assert users.options["kafka.bootstrap.servers"] == "127.0.0.1:9192"
    assert found.steps == (
        Step("joined", "select 1", Watermark("ts", "5 seconds"), ("user", "ts")),
    )
    assert found.sink == TopicSink(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9092",
            "topic": "out",
            "kafka.compression.type": "zstd",
        },
        mode="update",
        encode=Encode("json", "user"),
    )
    assert found.trigger == Trigger("10 seconds")


def test_trigger_and_checkpoint_of_the_command_line_replace_those_of_the_file():
    given = Overrides(GIVEN.servers, CONTINUOUS, "elsewhere")
    found = parsed(PIPELINE + SOURCE + SINK, given)
    assert (found.trigger, found.checkpoint) == (CONTINUOUS, "elsewhere")


def test_batch_pipeline_has_neither_trigger_nor_max_offsets_per_trigger():
    found = parsed('[pipeline]\nname = "x"\ntrigger = "batch"' + SOURCE + SINK)
    assert found.trigger is None
    assert "maxOffsetsPerTrigger" not in found.sources[0].options


@pytest.mark.parametrize("delay", ["0 seconds", "1 minute 30 seconds", "500 milliseconds", "1 Day"])
def test_spark_interval_is_accepted_as_watermark_delay(delay):
    text = f'{SOURCE}watermark = {{ column = "timestamp", delay = "{delay}" }}'
    assert parsed(PIPELINE + text + SINK).sources[0].watermark == Watermark("timestamp", delay)


REGISTRY = """decode = { format = "confluent_avro", schema.registry.url = "http://h:8081", %s }
"""


def test_registry_options_are_read_and_the_topic_names_the_subject():
    sink = """
        [sink]
        kind = "topic"
        topic = "out"
        encode = { format = "confluent_avro", "schema.registry.url" = "http://h", schema = "{}", key = "user" }
    """
    text = PIPELINE + SOURCE + REGISTRY % "subject.name.strategy = 'TopicNameStrategy'" + sink
    found = parsed(text)
    assert found.sources[0].decode == Decode(
        "confluent_avro",
        options={
            "schema.registry.url": "http://h:8081",
            "subject.name.strategy": "TopicNameStrategy",
            "topic": "clicks",
        },
    )
    assert isinstance(found.sink, TopicSink)
    options = {"schema.registry.url": "http://h", "schema": "{}", "topic": "out"}
    assert found.sink.encode == Encode("confluent_avro", "user", options)


KEYS = """
    [sink]
    kind = "topic"
    topic = "out"
    encode = { format = "json" }
    encode_key = { format = "confluent_avro", "schema.registry.url" = "http://h" %s }
"""


@pytest.mark.parametrize(
    ("key", "column", "columns"),
    [(', column = "user"', "user", ()), (', columns = ["user"]', None, ("user",))],
)
def test_key_has_a_schema_of_its_own(key: str, column: str, columns: tuple[str, ...]) -> None:
    source = SOURCE + (REGISTRY % "version = 2").replace("decode", "decode_key")
    found = parsed(PIPELINE + source + KEYS % key)
    assert found.sources[0].decode_key is not None
    assert found.sources[0].decode_key.options["version"] == "2"
    assert isinstance(found.sink, TopicSink)
    options = {"schema.registry.url": "http://h", "topic": "out"}
    assert found.sink.encode_key == EncodeKey("confluent_avro", options, column, columns)


def test_dead_letters_of_keys_need_no_schema_of_values():
    source = SOURCE + (REGISTRY % "version = 2").replace("decode", "decode_key")
    [found] = parsed(f"{PIPELINE}{source}dead_letter = 'rejected'\n{SINK}").sources
    assert found.decode_key is not None
    assert found.decode_key.options["mode"] == "permissive"
    assert found.finds_malformed


def test_dead_letters_make_the_mode_of_a_registry_permissive():
    text = PIPELINE + SOURCE + REGISTRY % 'version = "1"' + 'dead_letter = "rejected"'
    assert parsed(text + SINK).sources[0].decode.options["mode"] == "permissive"
    with pytest.raises(ConfigError, match='dead_letter and the mode "failfast" exclude each other'):
        parsed(text.replace("version", 'mode = "failfast", version') + SINK)


def test_topic_of_dead_letters_must_exist_at_the_start():
    text = f"{SOURCE}{JSON}dead_letter = 'rejected'"
    found = topics_at_start(parsed(PIPELINE + text + SINK), {})
    assert found == [("127.0.0.1:9092", ["clicks"]), ("127.0.0.1:9092", ["rejected"])]


@pytest.mark.parametrize(("create", "topics"), [("", ["clicks", "paid"]), ("true", ["clicks"])])
def test_topic_of_the_sink_must_exist_at_the_start_unless_it_is_created(create, topics):
    sink = '[sink]\nkind = "topic"\ntopic = "paid"\n' + (
        f"createTopics = {create}" if create else ""
    )
    found = topics_at_start(parsed(PIPELINE + SOURCE + sink), {})
    assert [name for _, names in found for name in names] == topics


def test_checkpoint_may_be_in_a_hidden_directory_of_the_sink():
    given = PIPELINE.replace("clicks.checkpoint", "clicks.parquet/_checkpoint")
    assert parsed(given + SOURCE + SINK).checkpoint == "clicks.parquet/_checkpoint"


def test_stream_to_the_console_needs_no_checkpoint():
    found = parsed('[pipeline]\nname = "x"' + SOURCE + '[sink]\nkind = "console"\nrows = 3')
    assert found.sink == ConsoleSink(3)


JSON = "decode = { format = 'json', schema = 'a int' }\n"
MISTAKES = {
    "x = ": "f.toml: invalid TOML: Invalid value (at line 1, the last one)",
    SOURCE + SINK: "f.toml: the table [pipeline] is missing",
    PIPELINE + SINK: "f.toml: a table [source.NAME] is missing",
    PIPELINE + SOURCE: "f.toml: the table [sink] is missing",
    PIPELINE + SOURCE + "[[sink]]": "f.toml: sink must be a table of keys, not a list",
    PIPELINE + "nam = 1" + SOURCE + SINK: "f.toml, [pipeline]: unknown key nam: did you mean name?",
    PIPELINE + SOURCE + "topik = 1" + SINK: (
        "f.toml, [source.clicks]: unknown key topik: did you mean topic?"
    ),
    PIPELINE + SOURCE + 'kafka.isolation.levle = "x"' + SINK: (
        "f.toml, [source.clicks]: unknown key kafka.isolation.levle: "
        "did you mean kafka.isolation.level?"
    ),
    PIPELINE + SOURCE + 'kafka.isolation.level = "x"' + SINK: (
        "f.toml, [source.clicks]: option kafka.isolation.level must be "
        "read_uncommitted or read_committed, not 'x'"
    ),
    PIPELINE + SOURCE + 'endingOffsets = "latest"' + SINK: (
        "f.toml, [source.clicks]: option endingOffsets has no effect on a stream: remove it"
    ),
    PIPELINE + SOURCE + "startingOffsets = 1.5" + SINK: (
        "f.toml, [source.clicks]: startingOffsets must be a string, a whole number, true or false, not a float"
    ),
    PIPELINE + SOURCE + 'kafka.sasl.jaas.config = ["hidden"]' + SINK: (
        "f.toml, [source.clicks]: kafka.sasl.jaas.config must be a string, a whole number, true or false, not a list"
    ),
    PIPELINE + SOURCE + '[sink]\nkind = "delta"\npath = "s3://b/t"\nstorage = "key=hidden"': (
        "f.toml, [sink]: storage must be a table of keys, not a string"
    ),
    PIPELINE + "[source.clicks]" + SINK: (
        "f.toml, [source.clicks]: topic is missing: name a topic, a list of topics, or a pattern"
    ),
    PIPELINE + "[source.clicks]\ntopic = [1]" + SINK: (
        "f.toml, [source.clicks]: topic must be a string or a list of strings, not [1]"
    ),
    PIPELINE + SOURCE + 'decode = { format = "avro" }' + SINK: (
        'f.toml, [source.clicks] decode: format must be "raw" or "string" or "json" or "csv" or'
        ' "confluent_avro" or "confluent_protobuf" or "confluent_json", not "avro"'
    ),
    PIPELINE + SOURCE + 'decode = { format = "confluent_avro" }' + SINK: (
        "f.toml, [source.clicks] decode: schema.registry.url is missing: name the address of the schema registry"
    ),
    PIPELINE
    + SOURCE
    + 'decode = { format = "confluent_avro", schema.registry.uri = "http://h" }'
    + SINK: (
        "f.toml, [source.clicks] decode: unknown key schema.registry.uri: did you mean schema.registry.url?"
    ),
    PIPELINE + SOURCE + 'decode_key = { format = "json" }' + SINK: (
        'f.toml, [source.clicks] decode_key: format must be "confluent_avro" or "confluent_protobuf" or'
        ' "confluent_json", not "json"'
    ),
    PIPELINE + SOURCE + KEYS.replace("encode =", "# ") % ', column = "a"': (
        "f.toml, [sink] encode_key: encode is missing: without it, rows must be records with a key"
    ),
    PIPELINE + SOURCE + KEYS.replace('"json"', '"json", key = "a"') % ', column = "a"': (
        "f.toml, [sink] encode_key: the key of encode and encode_key exclude each other: remove one"
    ),
    PIPELINE + SOURCE + KEYS % "": (
        'f.toml, [sink] encode_key: name the key: either column = "NAME" or columns = ["NAME", …]'
    ),
    PIPELINE + SOURCE + 'decode = { format = "json" }' + SINK: (
        "f.toml, [source.clicks] decode: schema is missing"
    ),
    PIPELINE + SOURCE + 'decode = { format = "raw", schema = "a int" }' + SINK: (
        "f.toml, [source.clicks] decode: unknown key schema: known keys are format"
    ),
    PIPELINE + SOURCE + "[source.other]\ntopic = 't'" + SINK: (
        "f.toml: 2 sources need a [[step]] that joins them"
    ),
    PIPELINE + "[source.'a-b']\ntopic = 't'" + SINK: (
        'f.toml: the name "a-b" must be letters, digits and _, for use in SQL'
    ),
    PIPELINE + SOURCE + "[[step]]\nname = 'Clicks'\nsql = 'x'" + SINK: (
        "f.toml: two sources or steps have the name Clicks"
    ),
    PIPELINE + SOURCE + "[[step]]\nname = 'a'" + SINK: "f.toml, [[step]] 1: sql is missing",
    PIPELINE + SOURCE + "[step]\nname = 'a'" + SINK: (
        "f.toml: step must be a list of tables: write [[step]] before each"
    ),
    PIPELINE + "trigger = 'hourly'" + SOURCE + SINK: (
        'f.toml, [pipeline]: trigger must be "available-now", "batch" or '
        "\"processing-time N seconds\", not 'hourly'"
    ),
    PIPELINE + SOURCE + "pattern = 'c.*'" + SINK: (
        "f.toml, [source.clicks]: topic and pattern exclude each other: remove one"
    ),
    PIPELINE + SOURCE + 'watermark = { column = "ts", delay = "soon" }' + SINK: (
        'f.toml, [source.clicks] watermark: delay must be a time such as "10 seconds", not "soon"'
    ),
    PIPELINE + "trigger = 'batch'" + SOURCE + SINK: (
        'f.toml, [pipeline]: checkpoint has no effect with the trigger "batch": remove it'
    ),
    "[pipeline]\nname = 'x'" + SOURCE + SINK: (
        "f.toml, [pipeline]: checkpoint is missing: name a directory, or --checkpoint DIR"
    ),
    PIPELINE + SOURCE + "[[step]]\nname = 'a'\nsql = 'x'\ndrop_duplicates = 'id'" + SINK: (
        "f.toml, [[step]] 1: drop_duplicates needs a watermark, which limits how long a row is remembered: add"
        ' watermark = { column = "…", delay = "…" }'
    ),
    PIPELINE + SOURCE + "[[step]]\nname = 'a'\nsql = 'x'\ndrop_duplicates = []" + SINK: (
        "f.toml, [[step]] 1: drop_duplicates names no column: name those whose values identify a row"
    ),
    "[pipeline]\nname = 'x'\ntrigger = 'batch'"
    + SOURCE
    + "[[step]]\nname = 'a'\nsql = 'x'\ndrop_duplicates = 'id'"
    + SINK: (
        'f.toml, [[step]] 1: drop_duplicates needs a stream: with the trigger "batch", use select distinct or'
        " row_number() in the sql"
    ),
    PIPELINE + SOURCE + "dead_letter = 'd'" + SINK: (
        'f.toml, [source.clicks]: dead_letter has no effect with the format "raw", in which no record is'
        " malformed: remove it, or decode json or csv with a schema"
    ),
    PIPELINE + SOURCE + f"dead_letter = 'clicks'\n{JSON}" + SINK: (
        "f.toml, [source.clicks]: dead_letter: the source clicks reads clicks: name another topic"
    ),
    PIPELINE
    + SOURCE
    + f"dead_letter = 'all-dead'\n{JSON}"
    + "[source.all]\npattern = 'all-.*'\n[[step]]\nname = 'a'\nsql = 'x'"
    + SINK: (
        "f.toml, [source.clicks]: dead_letter: the source all reads all-dead: name another topic"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'topic'\ntopic = 'clicks'": (
        "f.toml, [sink]: the source clicks reads the topic clicks: name another topic"
    ),
    PIPELINE + SOURCE + f"dead_letter = 'd'\n{JSON}[sink]\nkind = 'topic'\ntopic = 'd'": (
        "f.toml, [source.clicks]: dead_letter: the sink writes to d: name another topic"
    ),
    "[pipeline]\nname = {since = 2026-01-01}" + SOURCE + SINK: (
        'f.toml, [pipeline]: name must be a string, not the table {"since": "2026-01-01"}'
    ),
    PIPELINE + SOURCE + "startingOffsets = {clicks = 2026-01-01}\n" + SINK: (
        "f.toml, [source.clicks]: option startingOffsets must be earliest, latest or JSON such as"
        ' {"clicks":{"0":23,"1":-2}}, not \'{"clicks": "2026-01-01"}\''
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'kafka'": (
        'f.toml, [sink]: kind must be "topic" or "parquet" or "delta" or "iceberg" or "console", not'
        ' "kafka"'
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'parquet'\npath = 'p'\nmode = 'complete'": (
        'f.toml, [sink]: mode must be "append", not "complete"'
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'delta'": (
        "f.toml, [sink]: path is missing: name the directory or the URI of the table"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'iceberg'\npath = 's3://one/p'": (
        "f.toml, [sink]: s3://one/p: a table in an object storage needs a catalog: name its"
        " properties, such as uri"
    ),
    PIPELINE + "[source.clicks]\ntopic = '${TOPIC}'" + SINK: (
        "f.toml, [source.clicks]: topic: '${TOPIC}' is not a topic name of at most 249 letters, digits, '.', '_'"
        " and '-'"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'topic'\ntopic = 'a b'": (
        "f.toml, [sink]: option topic: 'a b' is not a topic name of at most 249 letters, digits, '.', '_' and '-'"
    ),
    "[pipeline]\nname = 'x'\ntrigger = 'batch'"
    + SOURCE
    + "[sink]\nkind = 'console'\nmode = 'append'": (
        'f.toml, [sink]: mode has no effect with the trigger "batch": remove it'
    ),
    PIPELINE + SOURCE + f"[sink]\nkind = 'parquet'\npath = '{__file__}'": (
        f"f.toml, [sink]: path: {__file__} is a file: name a directory"
    ),
    PIPELINE.replace('"clicks.checkpoint"', f"'{__file__}'") + SOURCE + SINK: (
        f"f.toml, [pipeline]: checkpoint: {__file__} is a file: name a directory"
    ),
    PIPELINE.replace('"clicks.checkpoint"', "'file:///a/b/cp'")
    + SOURCE
    + "[sink]\nkind = 'parquet'\npath = '/a/b/'": (
        "f.toml, [pipeline]: checkpoint: file:///a/b/cp is in /a/b/, whose readers would take its files for rows:"
        " name another directory for it"
    ),
    PIPELINE.replace('"clicks.checkpoint"', "'s3://a/b'")
    + SOURCE
    + "[sink]\nkind = 'delta'\npath = 's3://a/b/'": (
        "f.toml, [pipeline]: checkpoint: s3://a/b is in s3://a/b/, whose readers would take its files for rows:"
        " name another directory for it"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'delta'\npath = 'p'\npartition_by = 'week(ts)'": (
        "f.toml, [sink]: partition_by: week(ts) must be a column, date(COLUMN) or hour(COLUMN): use one of these,"
        " or add a column with this value in the query"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'iceberg'\npath = 'p'\ntimestamps = 'drop'": (
        'f.toml, [sink]: timestamps must be "refuse" or "null", not "drop"'
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'parquet'\npath = 'ftp://one/p'": (
        "f.toml, [sink]: ftp://one/p: the writers of an output need a store that creates an object only if it is"
        " absent, which is not known of ftp://; name a path, or a URI that begins with s3://, gs://, abfs:// or"
        " hdfs://, or mount the file system and name its path"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'parquet'\npath = 'p'\nstorage = { region = 'eu' }": (
        "f.toml, [sink]: p: the option region of a store has no effect without a URI: remove it, or name a URI"
    ),
    PIPELINE
    + SOURCE
    + "[sink]\nkind = 'parquet'\npath = 's3://b/p'\nstorage = { regoin = 'eu' }": (
        "f.toml, [sink]: s3://b/p cannot be used: Configuration key: 'regoin' is not valid for store 'S3': check"
        " the URI and the option storage"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'parquet'\npath = 'p'\npartition_by = ['a', '_topic']": (
        "f.toml, [sink]: partition_by: _topic would name directories that readers ignore, because they begin"
        " with _: give the column another name in a step"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'parquet'\npath = 'p'\npartition_by = ['a', 'A']": (
        "f.toml, [sink]: partition_by names a column twice"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'topic'\ntopic = 't'\nkafka.acks = 1": (
        "f.toml, [sink]: option kafka.acks must be all or -1, not '1'"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'console'\nrows = 0": (
        "f.toml, [sink]: rows must be a whole number from 1 to 2147483647, not 0"
    ),
    PIPELINE + SOURCE + "[sink]\nkind = 'console'\nrows = 2147483648": (
        "f.toml, [sink]: rows must be a whole number from 1 to 2147483647, not 2147483648"
    ),
}


@pytest.mark.parametrize("text", MISTAKES, ids=MISTAKES.values())
def test_error_about_a_pipeline_file_names_the_file_and_the_mistake(text):
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert str(caught.value) == MISTAKES[text]


def test_watermark_in_a_batch_pipeline_is_refused():
    text = '[pipeline]\nname = "x"\ntrigger = "batch"' + SOURCE
    with pytest.raises(ConfigError, match="watermark has no effect"):
        parsed(text + "watermark = { column = 'ts', delay = '1 second' }" + SINK)
