"""What keeps another user of the machine out: modes of folders and files, and owners of folders."""

from __future__ import annotations

import os
import stat
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


def test_the_folders_are_the_owners_alone(
    runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a run and of a viewer, its page's token among them, made where new files are everybody's."""
    cache = tmp_path / "cache"
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    before = os.umask(0)
    try:
        splatview.publish(torch.zeros(8, 8), meta={"step": 1})
        memo = memo_file()
        Memo(memo).put("light", True)
        columns = store.columns_folder()
        assert columns is not None
        store.save(columns, "0123", *store.pack(from_pickled({"segments": []})))
        snapshot = memory_snapshots.write_snapshot(
            memory_snapshots.snapshot_name("run-1-bbbb", 1, "asked"), b"x"
        )
        announcement = Announcement(
            "http://127.0.0.1:7007/?token=secret", host="127.0.0.1", port=7007
        )
        recording = StreamFolder(tmp_path / "recordings", "run", "stream")
        recording.write_index(1.0, [])
        recording.close()
    finally:
        os.umask(before)
    (told,) = runtime_dir.glob("viewer-*.json")
    assert "secret" in told.read_text()
    publisher = publishing.begun()
    assert publisher is not None
    run = publisher.folder.path
    for path in (
        runtime_dir,
        run,
        run / "run.json",
        run / "lock",
        memo,
        told,
        columns / "0123.columns",
        snapshot,
        cache / "splatview",
        columns.parent,
        columns,
        snapshot.parent,
        state / "splatview",
        recording.path,
    ):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    announcement.close()


@needs_root
def test_a_runtime_folder_of_another_user_is_not_used(
    runtime_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Prepared in /tmp, say, to catch runs."""
    runtime_dir.mkdir(mode=0o777)
    os.chown(runtime_dir, OTHER, OTHER)
    splatview.publish(torch.zeros(4, 4))
    assert publishing.begun() is None
    assert "not a folder that belongs to you" in caplog.text
    assert list(runtime_dir.iterdir()) == []
