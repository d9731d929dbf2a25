from __future__ import annotations

from pathlib import Path

from minikafka.checks.replicas.history_tables import _Line


def test_name_of_a_history_line_is_only_its_path_if_the_file_does_not_exist(
    tmp_path: Path,
) -> None:
    line = _Line((tmp_path / "history.jsonl").as_uri(), "{}")
    assert line.name() == str(tmp_path / "history.jsonl")
    assert not line.is_cut_off()


def test_name_of_a_history_line_is_its_path_and_line_number(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"producer": "a"}\n{"producer"')
    line = _Line(file.as_uri(), '{"producer"')
    assert line.name() == f"{file}, line 2"
    assert line.is_cut_off()
