"""Modes and owners that keep another user of the machine out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.other_users import OTHER, needs_root

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


@pytest.mark.usefixtures("open_umask")
def test_run_folder_is_its_owners_alone(runtime_dir: Path) -> None:
    splatview.publish(torch.zeros(8, 8), meta={"step": 1})
    publisher = publishing.begun()
    assert publisher is not None
    folder = publisher.folder.path
    for path in (runtime_dir, folder, folder / "run.json", folder / "lock"):
        assert _is_owners_alone(path), path


@pytest.mark.usefixtures("open_umask")
def test_announced_token_is_its_owners_alone(runtime_dir: Path) -> None:
    url = "http://127.0.0.1:7007/?token=secret"
    with Announcement(url, host="127.0.0.1", port=7007):
        (path,) = runtime_dir.glob("viewer-*.json")
        assert "secret" in path.read_text()
        assert _is_owners_alone(path)


@pytest.mark.usefixtures("open_umask")
def test_preferences_are_their_owners_alone(user_folder: Path) -> None:
    path = memo_file()
    Memo(path).put("light", True)
    assert _is_owners_alone(path)
    assert _is_owners_alone(user_folder / "state" / "splatview")


@pytest.mark.usefixtures("open_umask")
def test_memory_snapshots_are_their_owners_alone(user_folder: Path) -> None:
    columns = store.columns_folder()
    assert columns is not None
    store.save(columns, "0123", *store.pack(from_pickled({"segments": []})))
    name = memory_snapshots.snapshot_name("run-1-bbbb", 1, "asked")
    snapshot = memory_snapshots.write_snapshot(name, b"x")
    for path in (
        columns / "0123.columns",
        columns,
        columns.parent,
        snapshot,
        snapshot.parent,
        user_folder / "cache" / "splatview",
    ):
        assert _is_owners_alone(path), path


@pytest.mark.usefixtures("open_umask")
def test_recording_is_its_owners_alone(tmp_path: Path) -> None:
    recording = StreamFolder(tmp_path / "recordings", "run", "stream")
    recording.write_index(1.0, [])
    recording.close()
    assert _is_owners_alone(recording.path)


@needs_root
def test_runtime_folder_of_another_user_is_not_used(
    runtime_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a folder may be prepared in /tmp to catch runs."""
    runtime_dir.mkdir(mode=0o777)
    os.chown(runtime_dir, OTHER, OTHER)
    splatview.publish(torch.zeros(4, 4))
    assert publishing.begun() is None
    assert "not a folder that belongs to you" in caplog.text
    assert list(runtime_dir.iterdir()) == []
