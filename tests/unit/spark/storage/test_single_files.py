"""One output file: complete or absent, at a path and at a URI."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.locations import check_options
from minikafka.spark.storage.single_files import check_file, write_file


def test_file_is_replaced_at_once_and_a_failed_write_leaves_nothing(tmp_path):
    for data in (b"old", b"new"):
        write_file(str(tmp_path / "file"), data, {})
        assert (tmp_path / "file").read_bytes() == data
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(str(tmp_path / "folder"), b"new", {})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder"]


def test_uri_of_this_machine_names_the_same_file_as_its_path(tmp_path):
    write_file(f"file://{tmp_path}/a%20b", b"data", {"region": "of another output"})
    assert (tmp_path / "a b").read_bytes() == b"data"


@pytest.mark.parametrize(
    ("path", "storage", "text"),
    [
        ("/no/such/folder/x", {}, "/no/such/folder/x: the directory /no/such/folder does not"),
        ("s3://bucket", {}, "s3://bucket names no file: write a bucket and a name"),
        ("s3://bucket/", {}, "s3://bucket/ names no file"),
        ("s3://bucket/x", {"regoin": "eu"}, "'regoin' is not valid for store 'S3'"),
        ("ftp://host/x", {}, "ftp://host: the writers of an output need a store"),
    ],
)
def test_place_where_no_file_can_be_written_is_refused_with_a_sentence(path, storage, text):
    with pytest.raises(ConfigError, match=text):
        check_file(path, storage)


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["/a", None], "/a: the option region of a store has no effect without a URI: remove it"),
        ([None, None], "^the option region of a store has no effect without a URI"),
    ],
)
def test_options_of_a_store_need_an_output_at_a_uri(paths, text):
    check_options([*paths, "s3://bucket/x"], {"region": "eu"})
    check_options(paths, {})
    with pytest.raises(ConfigError, match=text):
        check_options(paths, {"region": "eu"})
