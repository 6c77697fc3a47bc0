"""Another user of the machine finds nothing of a run, can connect to nothing, read no memory and none of the files."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
import torch
from support.other_users import OTHER, needs_root
from support.reading import welcomed

import splatview
from splatview.api import session as publishing
from splatview_ipc.control import memory_snapshots
from splatview_ipc.control.registry import Announcement
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.core.host import Memo, memo_file
from splatview_viewer.kinds.snapshot.loading import from_pickled, store
from splatview_viewer.recording.recording import StreamFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

TRY = """
import json, os, socket, sys
run, inbox, fds, files, folders = json.loads(sys.argv[1])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
got = []
def attempt(call, *args):
    try:
        call(*args)
        got.append([call.__name__, *map(str, args)])
    except OSError:
        pass
def connect(path):
    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(path)
def read(path):
    open(path, "rb").read(1)
def write(path):
    open(path, "ab")
for name in ("socket", inbox, "run.json", "lock"):
    for call in (connect, os.stat, read, write):
        attempt(call, os.path.join(run, name))
for file in files:
    attempt(read, file)
    attempt(write, file)
for folder in (os.path.dirname(run), run, *folders, *map(os.path.dirname, files)):
    attempt(os.listdir, folder)
    attempt(write, os.path.join(folder, "x"))
for name in ("fd", "mem", "maps", *(f"fd/{fd}" for fd in fds)):
    attempt(os.listdir if name == "fd" else read, f"/proc/{os.getppid()}/{name}")
print(json.dumps(got))
"""
"""Tries as another user whatever it can of a run and of files and folders, and prints what it got."""


def opened_above(path: Path) -> None:
    """Let others into the folders above, so that it is ours which keep them out."""
    for above in (path, *path.parents):
        if above.stat().st_uid == os.getuid() and str(above).startswith("/tmp/"):
            above.chmod(0o755)


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
    """Permissions: what runs where no other user can be tried."""
    files, folders = kept
    for path in (runtime_dir, published, published / "run.json", published / "lock", *files[:4], *folders):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@needs_root
def test_another_user_gets_at_nothing(published: Path, kept: tuple[list[Path], list[Path]], programs: Programs,
                                      tmp_path: Path) -> None:
    publisher = publishing.begun()
    assert publisher is not None
    opened_above(tmp_path)
    fds, (files, folders) = [publisher.control.segment.fd], kept
    with Subscriber() as viewer:
        welcomed(viewer)
        (inbox,) = published.glob("in-*")
        request = json.dumps([str(published), inbox.name, fds, [*map(str, files)], [*map(str, folders)]])
        said, errors = programs.code(TRY, request, PYTHONPATH="").end()
    assert said, errors
    assert json.loads(said) == []


@needs_root
def test_a_runtime_folder_of_another_user_is_not_used(runtime_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Prepared in /tmp, say, to catch runs."""
    runtime_dir.mkdir(mode=0o777)
    os.chown(runtime_dir, OTHER, OTHER)
    splatview.publish(torch.zeros(4, 4))
    assert publishing.begun() is None
    assert "not a folder that belongs to you" in caplog.text
    assert list(runtime_dir.iterdir()) == []
