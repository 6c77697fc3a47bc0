"""How the page of a running viewer is found, and what dead viewers leave behind."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from splatview_ipc.control.errors import RuntimeFolderError
from splatview_ipc.control.registry import Announcement, viewers
from splatview_ipc.control.run_folder import runtime_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

URL = "http://127.0.0.1:7007/"
HOLD = """
import sys
from splatview_ipc.control.registry import Announcement
held = Announcement("http://127.0.0.1:7010/", host="127.0.0.1", port=7010, run="x")
print("announced", flush=True)
sys.stdin.readline()
"""


def test_a_viewer_is_found_while_it_is_announced(runtime_dir: Path) -> None:
    announcement = Announcement(URL + "?token=ab-C_1", host="0.0.0.0", port=7007, run="train")
    (found,) = viewers()
    assert (found.pid, found.url, found.host, found.port, found.run) == (
        os.getpid(), URL + "?token=ab-C_1", "0.0.0.0", 7007, "train")
    (file,) = runtime_dir.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    announcement.close()
    announcement.close()
    assert viewers() == []
    assert list(runtime_dir.iterdir()) == []


def test_a_killed_viewer_is_gone_and_cleaned_up(runtime_dir: Path, programs: Programs) -> None:
    process = programs.code(HOLD)
    assert process.line() == "announced"
    assert [(v.pid, v.run) for v in viewers()] == [(process.pid, "x")]
    process.killed()
    assert len(list(runtime_dir.iterdir())) == 1
    assert viewers() == []
    assert list(runtime_dir.iterdir()) == []


@pytest.fixture
def entry(runtime_dir: Path) -> Iterator[Path]:
    """An entry that is held: what is written to it counts."""
    path = runtime_folder() / "viewer-1-00000000.json"
    with open(path, "wb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield path


def said(**changed: Any) -> str:
    return json.dumps({"pid": 1, "url": URL, "host": "127.0.0.1", "port": 7007, "run": None, "started": 1.0, **changed})


def test_entries_that_make_no_sense_are_left_out(entry: Path) -> None:
    urls = ("", "javascript:alert(1)", "https://127.0.0.1:7007/", "http://127.0.0.1/", "http://127.0.0.1:7008/",
            "http://a@127.0.0.1:7007/", "http://127.0.0.1:7007/x", "http://127.0.0.1:7007?token=x",
            "http://127.0.0.1:7007/\n", "http://127.0.0.1:7007/?a\"b", "http://127.0.0.1:7007/?" + "a" * 2000)
    for content in ("", "{}", "[]", "[" * 100_000, said() + " " * 100_000, said(pid=0), said(pid="1"), said(port=0),
                    said(port=70_000, url="http://127.0.0.1:70000/"), said(host=""), said(host="h" * 300),
                    said(run="r" * 300), said(run=1), said(started=None), *(said(url=url) for url in urls)):
        entry.write_text(content)
        assert viewers() == [], content[:100]
    assert entry.exists(), "its holder lives"


def test_a_viewer_that_cannot_be_announced_goes_on(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(tmp_path / "file"))
    with Announcement(URL, host="127.0.0.1", port=7007):
        assert str(tmp_path / "file") in caplog.text
        assert len(caplog.records) == 1
    with pytest.raises(RuntimeFolderError):
        viewers()
