"""What the viewer remembers: kept, shared, bounded, and never in anybody's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatview_viewer.core.host import Memo


def test_what_was_put_is_there_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "viewer.json"
    Memo(file).put("a", [1, {"b": "c"}])
    again, other = Memo(file), Memo(file)
    assert again.get("a") == [1, {"b": "c"}]
    other.put("b", 2)
    again.put("a", None)
    assert (Memo(file).get("a", "gone"), Memo(file).get("b")) == (
        "gone",
        2,
    )  # two viewers keep what the other put
    assert [p.name for p in file.parent.iterdir()] == [
        "viewer.json"
    ]  # nothing half written stays


def test_a_file_that_is_none_of_ours_is_said_once_and_in_nobodys_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "viewer.json"
    for text in (b"not json", b"[" * 100_000, b"\xff\xfe"):
        file.write_bytes(text)
        assert Memo(file).get("a", 7) == 7
    file.write_text('"a text"')
    assert Memo(file).get("a", 7) == 7
    assert len(caplog.records) == 3
    (tmp_path / "folder").write_text("a file where a folder is needed")
    stuck = Memo(tmp_path / "folder" / "viewer.json")
    stuck.put("a", 1)
    stuck.put("a", 2)
    assert stuck.get("a") == 2
    assert len(caplog.records) == 4
