from __future__ import annotations

from pathlib import Path

from minikafka.pipeline.check.histories import _Line


def test_history_line_is_named_by_its_path_alone_if_the_file_cannot_be_read(
    tmp_path: Path,
) -> None:
    line = _Line((tmp_path / "history.jsonl").as_uri(), "{}")
    assert line.name() == str(tmp_path / "history.jsonl")
    assert not line.is_cut_off()


def test_history_line_is_named_by_its_path_and_line_number(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"producer": "a"}\n{"producer"')
    line = _Line(file.as_uri(), '{"producer"')
    assert line.name() == f"{file}, line 2"
    assert line.is_cut_off()
