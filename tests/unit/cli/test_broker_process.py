"""The file that a broker is run with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.cli.broker_process import load

KEYS = (
    "broker.id = 1",
    'zookeeper.connect = "h:2181"',
    'minikafka.cluster.secret = "0123456789abcdef"',
)


def write(directory: Path, *keys: str) -> Path:
    file = directory / "broker.toml"
    file.write_text("\n".join(["[broker]", *keys]))
    return file


def test_a_file_with_id_zookeeper_and_secret_is_enough(tmp_path: Path) -> None:
    assert load(write(tmp_path, *KEYS)).broker_id == 1


@pytest.mark.parametrize("left_out", KEYS)
def test_what_is_missing_is_named_with_the_file(tmp_path: Path, left_out: str) -> None:
    file = write(tmp_path, *(key for key in KEYS if key != left_out))
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert left_out.split(" = ")[0] in str(caught.value)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_key_that_is_none_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.bytes"):
        load(write(tmp_path, *KEYS, "log.retention.byte = 1"))


@pytest.mark.parametrize("again", ["d/", "d//", "other/../d", "link", "link/."])
def test_a_log_directory_that_is_named_twice_is_told_with_both_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("d")
    file = write(tmp_path, *KEYS, f'log.dirs = "{tmp_path}/d,e,{again}"')
    said = (
        f"{file}: log.dirs names {tmp_path}/d twice, as {tmp_path}/d and as {again}: leave one out"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        load(file)


def test_log_directories_of_their_own_need_not_be_there_yet(tmp_path: Path) -> None:
    dirs = (f"{tmp_path}/d", f"{tmp_path}/d/d", "/")
    file = write(tmp_path, *KEYS, f'log.dirs = "{",".join(dirs)}"')
    assert load(file).log_dirs == dirs
