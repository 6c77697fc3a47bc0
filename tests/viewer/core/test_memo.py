"""The viewer's memory of settings: kept, shared between viewers, and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatview_viewer.core.host import MOST_BYTES, Host, Memo


def test_values_are_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "viewer.json"
    Memo(file).put("a", [1, {"b": "c"}])
    first = Memo(file)
    second = Memo(file)
    assert first.get("a") == [1, {"b": "c"}]
    second.put("b", 2)
    first.put("a", None)
    # Each of two viewers keeps the values that the other put.
    assert Memo(file).get("a", "gone") == "gone"
    assert Memo(file).get("b") == 2
    names = [p.name for p in file.parent.iterdir()]
    assert names == ["viewer.json"], "no temporary file is left"


def test_value_that_is_too_large_is_not_remembered_and_others_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for memo in (Memo(tmp_path / "viewer.json"), Memo()):
        caplog.clear()
        memo.put("a", 1)
        for _ in range(3):
            memo.put("path", ["x" * 1000] * 600)
        memo.put("b", 2)
        assert (memo.get("a"), memo.get("b"), memo.get("path")) == (1, 2, None)
        (record,) = caplog.records
        assert record.getMessage().startswith("path is not remembered:")
        memo.put("path", ["x"])
        assert memo.get("path") == ["x"]


def test_oldest_values_are_removed_where_all_are_too_large_together(
    tmp_path: Path,
) -> None:
    file = tmp_path / "viewer.json"
    for memo in (Memo(file), Memo()):
        for i in range(12):
            memo.put(str(i), "x" * 200_000)
        remembered = [n for n in range(12) if memo.get(str(n)) is not None]
        assert remembered == list(range(7, 12))
    assert file.stat().st_size <= MOST_BYTES
    assert Memo(file).get("11") == "x" * 200_000


def test_file_of_another_form_is_logged_once_and_ignored(
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


def test_files_of_one_name_are_remembered_apart() -> None:
    memo = Memo()
    first, second = (
        Host(memo=memo, name="point_cloud.ply", identity=f"/{folder}/point_cloud.ply")
        for folder in "ab"
    )
    first.remember("bookmarks", {"1": "here"})
    assert first.recall("bookmarks") == {"1": "here"}
    assert second.recall("bookmarks") is None
    second.remember("bookmarks", {"2": "there"})
    first.remember("bookmarks", None)
    assert first.recall("bookmarks") is None
    assert second.recall("bookmarks") == {"2": "there"}


def test_values_stored_by_file_name_go_to_the_first_file_of_that_name() -> None:
    memo = Memo()
    memo.put("bookmarks/scene.ply", {"1": "here"})
    memo.put("bookmarks/scene", {"1": "a stream's"})
    hosts = [
        Host(memo=memo, name="scene.ply", identity=f"/{folder}/scene.ply")
        for folder in "ab"
    ]
    assert [host.recall("bookmarks") for host in hosts] == [{"1": "here"}, None]
    assert Host(memo=memo, name="scene").recall("bookmarks") == {"1": "a stream's"}
    assert Host(memo=memo, name="scene", identity="/a").recall("bookmarks") is None
