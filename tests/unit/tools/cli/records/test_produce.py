"""The command `produce`: lines, JSON and files as records, and errors about them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.clients.stub_cluster import StubCluster

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.client import ConsumedRecord, NotProduced, Record, retries
from minikafka.kafka.records.batch import build, records
from minikafka.kafka.records.header import CODEC_MASK, HEADER
from minikafka.tools.cli.records import record_input
from minikafka.tools.cli.records.consume import consume
from minikafka.tools.cli.records.produce import not_stored, produce
from minikafka.tools.cli.records.record_format import line_writer, write_json
from minikafka.tools.cli.records.record_input import Shape, lines_of

INT64 = range(-(2**63), 2**63)
TIMES = (-1, 0, -2, 10**18, INT64[0], INT64[-1])
BYTES = st.one_of(st.none(), st.binary(max_size=9), st.text(max_size=9).map(str.encode))


def send(text: bytes, *arguments: str) -> Result:
    """Run `produce t ARGUMENTS` after writing `text` to the file `input`."""
    Path("input").write_bytes(text)
    return CliRunner().invoke(produce, ["t", "-b", "h:1", "--summary", "none", *arguments])


@pytest.fixture
def there(stub: StubCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubCluster:
    monkeypatch.chdir(tmp_path)
    stub.create("t", [1, 2, 3])
    return stub


def stored(cluster: StubCluster, partition: int) -> list[Record]:
    return [r for batch in cluster.topics["t"][partition].batches for r in records(batch)]


def plain(rows: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value) for row in rows]


@pytest.mark.parametrize(
    ("line", "delimiter", "key", "value"),
    [
        (b"a:b", None, None, b"a:b"),
        (b"a:b:c", b":", b"a", b"b:c"),
        (b"a", b":", None, b"a"),
        (b":", b":", b"", b""),
        (b"", None, None, b""),
        (b"k=>v", b"=>", b"k", b"v"),
    ],
)
def test_line_is_split_at_the_first_delimiter(
    line: bytes, delimiter: bytes | None, key: bytes | None, value: bytes
) -> None:
    found = Shape(delimiter).of_line(line, "line 1").record
    assert (found.key, found.value) == (key, value)


def test_produce_options_set_headers_and_partition_and_make_empty_values_null(
    there: StubCluster,
) -> None:
    headers = ["-H", "a=1", "-H", "b=x=y", "-H", "c="]
    done = send(b"k\t\nl\tv\n", "-l", "-p", "2", "-K", r"\t", "-Z", *headers, "input")
    assert (done.exit_code, done.output) == (0, "")
    assert plain(stored(there, 2)) == [(b"k", None), (b"l", b"v")]
    assert stored(there, 2)[0].headers == (("a", b"1"), ("b", b"x=y"), ("c", b""))


def test_produce_says_that_it_created_the_topic(there: StubCluster) -> None:
    there.auto_create = True
    Path("input").write_bytes(b"a\nb\n")
    command = ["new", "-l", "input", "-b", "h:1", "--summary", "none"]
    done = CliRunner().invoke(produce, command)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "created topic new: 2 partitions, replication factor 3\n"
    assert CliRunner().invoke(produce, command).stderr == ""


def test_no_topic_is_created_without_a_record(there: StubCluster) -> None:
    there.auto_create = True
    Path("input").write_bytes(b"")
    done = CliRunner().invoke(produce, ["new", "-l", "input", "-b", "h:1"])
    assert (done.exit_code, "new" in there.topics) == (0, False)
    assert done.stderr.startswith("sent 0 records (0 B) to new in ")


def test_empty_line_is_an_empty_value_without_option_z(there: StubCluster) -> None:
    assert send(b"\n", "-l", "-p", "0", "input").exit_code == 0
    assert plain(stored(there, 0)) == [(None, b"")]


def test_produce_sends_each_file_as_one_record(there: StubCluster) -> None:
    Path("other").write_bytes(b"\xff" * 3_000)
    assert send(b"two\nlines\n", "-p", "1", "input", "other").exit_code == 0
    assert plain(stored(there, 1)) == [(None, b"two\nlines\n"), (None, b"\xff" * 3_000)]


def test_produce_json_lines_become_records_with_all_their_fields(there: StubCluster) -> None:
    done = send(
        b'{"key":"k","value":"v","headers":[{"key":"h","value":"x"},["n",null]],"partition":2,"timestamp":77}\n'
        b"\n"
        b'{"value_base64":"/w==","partition":0,"headers":{"m":"y"},"topic":"elsewhere","offset":5}\n'
        b'{"key":"k"}',
        "--json",
        "-p",
        "1",
        "-H",
        "all=1",
        "input",
    )
    assert (done.exit_code, done.output) == (0, "")
    (full,), (binary,), (default,) = (stored(there, p) for p in (2, 0, 1))
    assert full[1:] == (77, b"k", b"v", (("h", b"x"), ("n", None), ("all", b"1")))
    assert (binary.key, binary.value, binary.headers[0]) == (None, b"\xff", ("m", b"y"))
    assert (default.key, default.value) == (b"k", None)
    assert default.timestamp > 10**12


def test_output_of_consume_as_json_is_input_of_produce(there: StubCluster) -> None:
    rows = b'{"key":null,"key_base64":"gA==","value":null,"partition":1,"timestamp":5,"headers":[["h",""]]}\n'
    assert send(rows, "--json", "input").exit_code == 0
    shown = CliRunner().invoke(consume, ["t", "-b", "h:1", "-e", "-q", "--json"]).stdout_bytes
    assert send(shown, "--json", "input").exit_code == 0
    first, second = stored(there, 1)
    assert first[1:] == second[1:] == (5, b"\x80", None, (("h", b""),))


@given(
    st.lists(
        st.builds(
            ConsumedRecord,
            st.just("t"),
            st.integers(0, 2),
            st.integers(0, INT64.stop - 1),
            st.one_of(st.sampled_from(TIMES), st.integers(INT64.start, INT64.stop - 1)),
            BYTES,
            BYTES,
            st.lists(st.tuples(st.sampled_from(["", "h", "é\n"]), BYTES), max_size=4).map(tuple),
        ),
        max_size=3,
    )
)
def test_produce_reads_back_each_record_that_consume_prints_as_json(
    rows: list[ConsumedRecord],
) -> None:
    lines = b"".join(map(write_json, rows)).split(b"\n")[:-1]
    items = [Shape().of_json(line, "line") for line in lines]
    assert [(item.partition, *item.record[1:]) for item in items] == [
        (row.partition, *row[3:7]) for row in rows
    ]


@given(st.binary(), st.binary())
def test_produce_reads_back_the_key_and_value_that_consume_prints_as_a_line(
    key: bytes, value: bytes
) -> None:
    key, value = key.replace(b"=", b"-").replace(b"\n", b"-"), value.replace(b"\n", b"-")
    line = line_writer((), b"=")(ConsumedRecord("t", 0, 0, 0, key, value, ()))
    found = Shape(b"=", empty_is_null=True).of_line(line[:-1], "line").record
    assert (found.key, found.value) == (key, value or None)


def test_records_with_every_value_survive_consume_and_produce_as_json(
    there: StubCluster,
) -> None:
    """The records are one batch. Its timestamps are further apart than the largest int64."""
    rows = [
        Record(timestamp=when, key=data, value=data, headers=(("h", data), ("h", data), ("", None)))
        for when in TIMES
        for data in (None, b"", b"\xff\x00", b"\r\n\xe2\x80\xa8")
    ]
    there.topics["t"][1].append(build(rows))
    shown = CliRunner().invoke(consume, ["t", "-b", "h:1", "-e", "-q", "--json"]).stdout_bytes
    assert send(shown, "--json", "input").exit_code == 0
    found = [row[1:] for row in stored(there, 1)]
    assert found == [row[1:] for row in rows] * 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"x", "not JSON: expecting value at column 1"),
        (b"[1]", "not a JSON object"),
        (b'{"vaule":"v"}', "unknown field 'vaule'"),
        (b'{"value":5}', "value must be a string or null, got 5"),
        (b'{"value":"v","value_base64":"/w=="}', "give value or value_base64, not both"),
        (b'{"key_base64":"?"}', "key_base64 is not base64"),
        (b'{"value":"\\ud800"}', "value is not valid Unicode"),
        (b'{"value":"\xff"}', "not UTF-8"),
        (b'{"partition":-1}', "partition must be a whole number from 0"),
        (b'{"timestamp":"now"}', "timestamp must be a whole number from -9223372036854775808 to"),
        (
            b'{"timestamp":9223372036854775808}',
            "timestamp must be a whole number from -92233720368",
        ),
        (b'{"timestamp":true}', "timestamp must be a whole number from -9223372036854775808 to"),
        (
            b'{"headers":{"h":"1","h":"2"}}',
            "not JSON: the field 'h' is given twice (headers of one",
        ),
        (b'{"value":"1","value":"2"}', "not JSON: the field 'value' is given twice"),
        (b'{"headers":"h"}', "headers must be a list or an object"),
        (b'{"headers":[{"name":"h"}]}', "a header must be"),
        (b'{"headers":{"h":1}}', "header 'h': value must be a string or null, got 1"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
    ],
)
def test_error_names_the_invalid_json_line_and_earlier_records_are_stored(
    there: StubCluster, line: bytes, problem: str
) -> None:
    text = b'{"value":"v","partition":0}\n\n' + line + b'\n{"value":"never"}\n'
    done = send(text, "--json", "input")
    assert str(done.exception).startswith(f"line 3 of input: {problem}")
    assert str(done.exception).endswith("; 1 record was stored")
    assert plain(stored(there, 0)) == [(None, b"v")]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-H", "novalue"], "'novalue' is not KEY=VALUE"),
        (["-H", "=v"], "'=v' is not KEY=VALUE"),
        (["-H", "\udcff=v"], "the name of a header must be UTF-8, got '\\udcff'"),
        (["--json", "-K", ":"], "-K splits lines"),
        (["-K", ":", "input"], "-K splits lines"),
    ],
)
def test_produce_refuses_invalid_or_contradictory_options(
    there: StubCluster, arguments: list[str], problem: str
) -> None:
    done = send(b"", *arguments)
    assert done.exit_code == 2
    assert problem in done.output


def test_empty_delimiter_is_a_usage_error(there: StubCluster) -> None:
    done = send(b"a\n", "-K", "")
    assert (done.exit_code, "-K must not be empty" in done.stderr) == (2, True)


def test_missing_file_is_a_usage_error_before_any_record_is_sent(there: StubCluster) -> None:
    done = send(b"x", "input", "nowhere")
    assert (done.exit_code, "File 'nowhere' does not exist." in done.stderr) == (2, True)
    assert not any(partition.batches for partition in there.topics["t"])


def test_topic_is_an_argument_or_an_option(there: StubCluster) -> None:
    Path("input").write_bytes(b"v")
    done = CliRunner().invoke(produce, ["-t", "t", "-b", "h:1", "-p", "0", "input"])
    assert done.exit_code == 0, done.output
    assert plain(stored(there, 0)) == [(None, b"v")]
    assert CliRunner().invoke(produce, []).exit_code == 2


def test_produced_batch_has_the_compression_codec_of_the_option(there: StubCluster) -> None:
    done = send(b"v" * 500 + b"\n", "-l", "-p", "0", "-z", "gzip", "--acks", "1", "input")
    assert done.exit_code == 0
    (batch,) = there.topics["t"][0].batches
    assert HEADER.unpack_from(batch)[5] & CODEC_MASK == 1


def test_produce_help_explains_the_partitions_of_keyless_records() -> None:
    text = " ".join(CliRunner().invoke(produce, ["--help"]).output.split())
    assert "Records without a key are spread: 16 KiB of them go to one partition" in text


def test_keyless_records_go_to_the_next_partition_after_about_16_kib(there: StubCluster) -> None:
    assert send(b"x" * 999 + b"\n" + (b"x" * 999 + b"\n") * 99, "-l", "input").exit_code == 0
    counts = [len(stored(there, p)) for p in range(3)]
    assert sum(counts) == 100
    assert max(counts) - min(counts) <= 17


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the write end of a pipe whose read end replaces the command's standard input."""
    reading, writing = os.pipe()
    monkeypatch.setattr(record_input, "STDIN", reading)
    yield writing
    os.close(reading)


async def test_input_lines_are_complete_and_in_order_without_a_final_newline(
    monkeypatch: pytest.MonkeyPatch, stdin: int
) -> None:
    monkeypatch.setattr(record_input, "CHUNK_BYTES", 7)
    text = b"one\n\ntwo and more than a chunk\nx\nlast"

    def write() -> None:
        os.write(stdin, text)
        os.close(stdin)

    threading.Thread(target=write).start()
    lines = [line async for some in lines_of("") for line in some]
    assert lines == text.split(b"\n")


def test_standard_input_is_read_line_by_line(there: StubCluster, stdin: int) -> None:
    os.write(stdin, b"a\nb\n")
    os.close(stdin)
    assert CliRunner().invoke(produce, ["t", "-b", "h:1", "-p", "0"]).exit_code == 0
    assert plain(stored(there, 0)) == [(None, b"a"), (None, b"b")]


@pytest.mark.parametrize(
    ("code", "detail", "stored_here", "expected"),
    [
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            "t-0",
            2,
            "MESSAGE_TOO_LARGE: line 4 is larger than max.message.bytes of topic t; "
            "12 records were stored (to raise it: minikafka configs set --topic t max.message.bytes=N)",
        ),
        (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "t-0",
            0,
            "NOT_ENOUGH_REPLICAS: line 4 (t-0); 10 records were stored",
        ),
    ],
)
def test_error_has_the_refused_line_and_the_number_of_stored_records(
    code: ErrorCode, detail: str, stored_here: int, expected: str
) -> None:
    error = NotProduced(KafkaError(code, detail), index=3, stored=stored_here)
    items = [Shape().of_line(b"x", f"line {i}") for i in range(1, 6)]
    assert str(not_stored(error, "t", items, done=10)) == expected


def test_error_about_an_unknown_partition_names_the_json_line(
    there: StubCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "UNKNOWN_TOPIC_MS", 50)
    done = send(b'{"partition":1}\n{"partition":9}\n', "--json", "input")
    assert done.exit_code == 1
    assert str(done.exception) == (
        "UNKNOWN_TOPIC_OR_PARTITION: line 2 of input: there is no partition t-9; 1 record was stored "
        "(to list its partitions: minikafka topics describe t)"
    )


def test_error_about_an_unknown_topic_names_the_topic_instead_of_a_line() -> None:
    unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t: no such topic")
    items = [Shape().of_line(b"x", "line 1")]
    error = not_stored(NotProduced(unknown, index=0, stored=0), "t", items, done=0)
    assert str(error) == str(unknown)


async def test_error_says_that_standard_input_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(record_input, "STDIN", directory)
    with pytest.raises(MinikafkaError, match=r"^standard input: Is a directory$"):
        _ = [lines async for lines in lines_of("")]
    os.close(directory)
    with pytest.raises(MinikafkaError, match=r": Is a directory$"):
        _ = [lines async for lines in lines_of(str(tmp_path))]
