"""What the viewer remembers: kept, shared, bounded, and never in anybody's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatview_viewer.core.host import MOST_BYTES, Host, Memo


def test_what_was_put_is_there_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "viewer.json"
    Memo(file).put("a", [1, {"b": "c"}])
    again = Memo(file)
    other = Memo(file)
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


def test_value_that_is_too_large_is_not_remembered_and_keeps_no_other_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for memo in (Memo(tmp_path / "viewer.json"), Memo()):
        caplog.clear()
        memo.put("a", 1)
        for _ in range(3):
            memo.put("path", ["x" * 1000] * 600)
        memo.put("b", 2)
        assert (memo.get("a"), memo.get("b"), memo.get("path")) == (1, 2, None)
        assert [r.getMessage()[:23] for r in caplog.records] == [
            "path is not remembered:"
        ]
        memo.put("path", ["x"])
        assert memo.get("path") == ["x"]


def test_oldest_values_give_way_where_all_are_too_large_together(
    tmp_path: Path,
) -> None:
    file = tmp_path / "viewer.json"
    for memo in (Memo(file), Memo()):
        for number in range(12):
            memo.put(str(number), "x" * 200_000)
        held = [n for n in range(12) if memo.get(str(n)) is not None]
        assert held == list(range(7, 12))
    assert file.stat().st_size <= MOST_BYTES
    assert Memo(file).get("11") == "x" * 200_000


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


def test_what_was_remembered_by_a_files_name_goes_to_the_first_of_that_name() -> None:
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
