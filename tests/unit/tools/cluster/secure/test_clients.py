"""The configurations of client libraries, also where the data directory has an unusual name."""

from __future__ import annotations

import json
from pathlib import Path

from minikafka.base.config.client import client_config as parse
from minikafka.base.properties import decode_properties, encode_property
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.secure.clients import ClientAccess, blocks, client_config
from minikafka.tools.cluster.secure.files import SecurityFiles


def access_in(directory: Path) -> ClientAccess:
    files = SecurityFiles(ClusterDirectory(directory))
    files.prepare(SystemClock(), SystemRng())
    return ClientAccess("127.0.0.1:1", files.authority, files.login("alice"))


def test_properties_of_a_directory_with_an_unusual_name_are_read_as_written(tmp_path: Path) -> None:
    directory = tmp_path / "Käse \\ \U0001f980"
    directory.mkdir()
    access = access_in(directory)
    text = client_config("properties", access)
    found = parse(decode_properties(text.encode("ascii")))
    assert found.ssl_truststore_location == str(access.authority)
    names: dict[str, object] = {}
    exec("\n".join(blocks(access)).split("# spark: ")[1].partition("\n")[2], names)
    assert names["config"] == client_config("spark", access)
    path = client_config("kafkajs", access).split("readFileSync(")[1].split(")]")[0]
    assert json.loads(path) == str(access.authority)


def test_property_with_blanks_and_escapes_is_read_as_written() -> None:
    for value in (" a", "", "a=b:c", "tab\tend ", "back\\slash", "\U0001f980é"):
        [entry] = decode_properties(encode_property("name", value).encode("ascii"))
        assert entry.value == value
