"""Which process has a file of a directory open."""

from __future__ import annotations

import subprocess
from pathlib import Path

from minikafka.runtime.descriptors import process_that_uses


def test_process_with_an_open_file_is_found_until_it_ends(tmp_path: Path) -> None:
    used, other = tmp_path / "used", tmp_path / "used-too"
    used.mkdir()
    other.mkdir()
    with (
        (used / "log").open("wb") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as child,
    ):
        assert process_that_uses(str(used)) == child.pid
        assert process_that_uses(str(other)) is None
        child.communicate()
        assert process_that_uses(str(used)) is None, "the own process does not count"
