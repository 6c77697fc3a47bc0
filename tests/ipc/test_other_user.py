"""Modes and owners that keep another user of the machine out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.other_users import OTHER_USER_ID, needs_root

import splatview
from splatview.api import session as publishing
from splatview_ipc.control import memory_snapshots
from splatview_ipc.control.registry import Announcement
from splatview_viewer.core.host import Memo, memo_file
from splatview_viewer.recording.recording import StreamFolder
from splatview_viewer.snapshot.loading import from_pickled, store


def _is_owners_alone(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.fixture
def open_umask() -> Iterator[None]:
    """New files are everybody's."""
    previous = os.umask(0)
    yield
    os.umask(previous)


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's cache and state."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def _make_run(runtime_dir: Path) -> list[Path]:
    splatview.publish(torch.zeros(8, 8), meta={"step": 1})
    publisher = publishing.started_publisher()
    assert publisher is not None
    folder = publisher.folder.path
    return [runtime_dir, folder, folder / "run.json", folder / "lock"]


def _make_preferences(user_folder: Path) -> list[Path]:
    path = memo_file()
    Memo(path).put("light", True)
    return [path, user_folder / "state" / "splatview"]


def _make_snapshots(user_folder: Path) -> list[Path]:
    columns = store.columns_folder()
    assert columns is not None
    store.save(columns, "0123", *store.pack(from_pickled({"segments": []})))
    name = memory_snapshots.snapshot_name("run-1-bbbb", 1, "asked")
    snapshot = memory_snapshots.write_snapshot(name, b"x")
    files = [columns / "0123.columns", snapshot]
    folders = [columns, columns.parent, snapshot.parent]
    return [*files, *folders, user_folder / "cache" / "splatview"]


def _make_recording(user_folder: Path) -> list[Path]:
    recording = StreamFolder(user_folder / "recordings", "run", "stream")
    recording.write_index(1.0, [])
    recording.close()
    return [recording.path]


@pytest.mark.usefixtures("open_umask")
def test_the_folders_are_the_owners_alone(runtime_dir: Path, user_folder: Path) -> None:
    """So is the file of an announced viewer, with the token of its page."""
    paths = [
        *_make_run(runtime_dir),
        *_make_preferences(user_folder),
        *_make_snapshots(user_folder),
        *_make_recording(user_folder),
    ]
    url = "http://127.0.0.1:7007/?token=secret"
    with Announcement(url, host="127.0.0.1", port=7007):
        (announced,) = runtime_dir.glob("viewer-*.json")
        assert "secret" in announced.read_text()
        for path in (*paths, announced):
            assert _is_owners_alone(path), path


@needs_root
def test_a_runtime_folder_of_another_user_is_not_used(
    runtime_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a folder may be prepared in /tmp to catch runs."""
    runtime_dir.mkdir(mode=0o777)
    os.chown(runtime_dir, OTHER_USER_ID, OTHER_USER_ID)
    splatview.publish(torch.zeros(4, 4))
    assert publishing.started_publisher() is None
    assert "not a folder that belongs to you" in caplog.text
    assert list(runtime_dir.iterdir()) == []
