"""What keeps another user of the machine out: modes of folders and files, and owners of folders."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
import torch
from support.other_users import OTHER, needs_root

import splatview
from splatview.api import session as publishing
from splatview_ipc.control import memory_snapshots
from splatview_ipc.control.registry import Announcement
from splatview_viewer.core.host import Memo, memo_file
from splatview_viewer.kinds.snapshot.loading import from_pickled, store
from splatview_viewer.recording.recording import StreamFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path




@pytest.fixture
def published(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a run of this process, begun where new files are everybody's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        splatview.publish(torch.zeros(8, 8), step=1)
    finally:
        os.umask(before)
    publisher = publishing.begun()
    assert publisher is not None
    return publisher.folder.path


@pytest.fixture
def kept(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[list[Path], list[Path]]]:
    """Files and folders of a viewer, its page's token among them, made where new files are everybody's."""
    cache, state = tmp_path / "home" / "cache", tmp_path / "home" / "state"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    before = os.umask(0)
    try:
        for theirs in (tmp_path / "home", cache, state):  # so that it is our folders which keep it out
            theirs.mkdir(mode=0o755)
        memo = memo_file()
        Memo(memo).put("light", True)
        columns = store.folder()
        assert columns is not None
        store.keep(columns, "0123", *store.packed(from_pickled({"segments": []})))
        snapshot = memory_snapshots.write_private(memory_snapshots.name_of("run-1-bbbb", 1, "asked"), b"x")
        announcement = Announcement("http://127.0.0.1:7007/?token=secret", host="127.0.0.1", port=7007)
        recording = StreamFolder(tmp_path / "recordings", "run", "stream")
        recording.write_index(1.0, [])
        recording.close()
    finally:
        os.umask(before)
    (told,) = runtime_dir.glob("viewer-*.json")
    assert "secret" in told.read_text()
    files = [memo, told, columns / "0123.columns", snapshot, recording.path / "recording.json"]
    yield files, [cache / "splatview", columns.parent, columns, snapshot.parent, state / "splatview", recording.path]
    announcement.close()


def test_the_folders_are_the_owners_alone(published: Path, kept: tuple[list[Path], list[Path]],
                                          runtime_dir: Path) -> None:
    files, folders = kept
    for path in (runtime_dir, published, published / "run.json", published / "lock", *files[:4], *folders):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@needs_root
def test_a_runtime_folder_of_another_user_is_not_used(runtime_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Prepared in /tmp, say, to catch runs."""
    runtime_dir.mkdir(mode=0o777)
    os.chown(runtime_dir, OTHER, OTHER)
    splatview.publish(torch.zeros(4, 4))
    assert publishing.begun() is None
    assert "not a folder that belongs to you" in caplog.text
    assert list(runtime_dir.iterdir()) == []
