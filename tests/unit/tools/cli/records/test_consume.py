"""The command `consume`: its output, its start and end offsets, and the options that it refuses."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from support.clients.stub_cluster import StubCluster

from minikafka.client import Record
from minikafka.kafka.records.batch import build
from minikafka.kafka.wire import versions
from minikafka.tools.cli.records.consume import consume
from minikafka.tools.cli.records.record_format import unescape


@pytest.fixture
def topic(stub: StubCluster) -> StubCluster:
    """The cluster with topic t: five records (times 1000 to 5000) in partition 0, a binary record in partition 1."""
    first, second = stub.create("t", [1, 2])
    for i in range(5):
        headers = (("a", b"%d" % i), ("n", None))
        row = Record(timestamp=1000 * (i + 1), key=b"k%d" % i, value=b"v%d" % i, headers=headers)
        first.append(build([row]))
    second.append(
        build([Record(timestamp=2500, key=b"\xff", value=None, headers=(("h", b"\xfe"),))])
    )
    return stub


def call(*arguments: str) -> Result:
    return CliRunner().invoke(consume, ["t", "-e", "--bootstrap", "h:1", *arguments])


def values(*arguments: str) -> list[str]:
    done = call("-p", "0", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


ALL = ["v0", "v1", "v2", "v3", "v4"]


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([], ALL),
        (["-o", "beginning"], ALL),
        (["--from-beginning"], ALL),
        (["-o", "end"], []),
        (["-o", "3"], ALL[3:]),
        (["-o", "-2"], ALL[3:]),
        (["-o", "-99"], ALL),
        (["-o", "+1"], ALL[1:]),
        (["-o", "1:3"], ALL[1:3]),
        (["-o", "1:99"], ALL[1:]),
        (["-o", "s@2000"], ALL[1:]),
        (["-o", "s@2001"], ALL[2:]),
        (["-o", "s@9000"], []),
        (["-o", "s@1970-01-01T00:00:03Z"], ALL[2:]),
        (["-o", "e@3000"], ALL[:2]),
        (["-o", "e@9000"], ALL),
        (["-o", "s@2000", "-o", "e@4000"], ALL[1:3]),
        (["-o", "-3", "-n", "2"], ALL[2:4]),
        (["-c", "1"], ALL[:1]),
    ],
)
def test_consume_option_o_chooses_the_start_and_end_offsets(
    where: list[str], expected: list[str]
) -> None:
    assert values(*where) == expected


@pytest.mark.parametrize("words", [["evnts"], ["evnts", "--group", "g"], ["events", "-p", "7"]])
def test_consume_of_an_unknown_topic_or_partition_fails_without_retries(
    stub: StubCluster, words: list[str]
) -> None:
    stub.create("events", [1])
    done = CliRunner().invoke(consume, [*words, "--bootstrap", "h:1"])
    assert done.exit_code == 1
    assert "events-7: no such partition" in str(done.exception) or (
        getattr(done.exception, "hint", "") == "did you mean events?"
    )
    assert len(stub.asked(versions.METADATA)) < 8


def test_timestamp_column_has_negative_timestamps_as_in_kafka(topic: StubCluster) -> None:
    topic.topics["t"][1].append(build([Record(timestamp=at, value=b"v") for at in (-1, -5)]))
    assert call("-p", "1", "-o", "-2", "-q", "--print", "timestamp").stdout.splitlines() == [
        "CreateTime:-1\tv",
        "CreateTime:-5\tv",
    ]


@pytest.mark.usefixtures("topic")
def test_offset_that_a_partition_does_not_have_is_an_error_with_the_valid_range() -> None:
    done = CliRunner().invoke(consume, ["t", "-o", "3", "-b", "h:1"])
    assert str(done.exception) == (
        "OFFSET_OUT_OF_RANGE: t-1 has no offset 3: valid offsets are 0 to 1"
    )


@pytest.mark.usefixtures("topic")
def test_consume_format_understands_the_tokens_of_kcat_and_rpk() -> None:
    kcat = call("-n", "1", "-p", "0", "-f", r"%t[%p]@%o %T %k(%K)=%s(%S) %h %%\n")
    assert kcat.stdout == "t[0]@0 1000 k0(2)=v0(2) a=0,n= %\n"
    rpk = call("-n", "1", "-p", "0", "-f", r"%v %V %d %H %h{<%k:%v>}\t\x41\n")
    assert rpk.stdout == "v0 2 1000 2 <a:0><n:>\tA\n"
    null = call("-p", "1", "-f", "%s%S%R")
    assert null.stdout_bytes == b"-1\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (r"\n\r\t", b"\n\r\t"),
        (r"\x41\xg", b"Axg"),
        (r"\0|\012|\65|\9", b"\0|\n|A|\t"),
        (r"\\ \"\|", b'\\ "|'),
        ("é\\", "é\\".encode()),
    ],
)
def test_escapes_in_a_format_become_the_bytes_that_kcat_prints(text: str, data: bytes) -> None:
    assert unescape(text) == data


@pytest.mark.usefixtures("topic")
def test_key_and_print_options_give_the_columns_of_kafkas_console_consumer() -> None:
    assert values("-n", "1", "-K", r"\t") == ["k0\tv0"]
    assert values("-n", "1", "--print", "headers,timestamp,partition,offset", "-K", "=") == [
        "CreateTime:1000\tPartition:0\tOffset:0\ta:0,n:null\tk0=v0"
    ]
    assert values("-n", "1", "--print", "offset") == ["Offset:0\tv0"]


@pytest.mark.usefixtures("topic")
def test_consume_json_has_bytes_that_are_not_text_as_base64_in_a_separate_field() -> None:
    text, binary = (json.loads(call("--json", "-n", "1", "-p", p).stdout) for p in "01")
    assert text == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 1000,
        "key": "k0",
        "value": "v0",
        "headers": [{"key": "a", "value": "0"}, {"key": "n", "value": None}],
    }
    assert (binary["key"], binary["key_base64"], binary["value"]) == (None, "/w==", None)
    assert "value_base64" not in binary
    assert binary["headers"] == [{"key": "h", "value": None, "value_base64": "/g=="}]


@pytest.mark.usefixtures("topic")
def test_end_of_each_partition_is_reported_on_standard_error_unless_quiet() -> None:
    assert sorted(call().stderr.splitlines()) == [
        "% Reached end of topic t [0] at offset 5",
        "% Reached end of topic t [1] at offset 1",
    ]
    assert call("-o", "1:3", "-p", "0").stderr == "% Stopped in topic t [0] before offset 3\n"
    assert call("-o", "end", "-p", "0").stderr == "% Reached end of topic t [0] at offset 5\n"
    assert call("-q").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-o", "stored"], "'stored' is not beginning, end, N, -N"),
        (["-o", "s@yesterday"], "'yesterday' is not a time"),
        (["-o", "9:5"], "ends before it begins"),
        (["-o", "s@5", "-o", "e@3"], "the time to stop is before the time to start"),
        (["-o", "1", "-o", "2"], "only one place to start"),
        (["--from-beginning", "-o", "end"], "name different places to start"),
        (["-o", "99999999999999999999"], "is not an offset"),
        (["-f", "%y"], "'%y' is not a token: use one of %%"),
        (["-f", "half %"], "'%' is not a token"),
        (["-f", "%s", "--json"], "choose one of these formats: -f, or --json, or -K and --print"),
        (["--json", "-K", ":"], "choose one of"),
        (["--print", "offset,size"], "'size' is not one of timestamp, partition, offset, headers"),
    ],
)
def test_consume_refuses_invalid_or_contradictory_options(
    arguments: list[str], problem: str
) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert problem in " ".join(done.stderr.replace("│", " ").split())


def test_consume_start_time_of_ten_digits_is_in_seconds(stub: StubCluster) -> None:
    (log,) = stub.create("t", [1])
    for at in (1_700_000_000_000, 1_700_000_001_000):
        log.append(build([Record(timestamp=at, value=b"%d" % at)]))
    assert values("-o", "s@1700000001") == ["1700000001000"]
    assert values("-o", "@2023-11-14T22:13:21") == ["1700000001000"]
