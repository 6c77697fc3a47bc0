"""Files from pages and for them, over real sockets: who may send and fetch, within which bounds, and what stays."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.wait import wait_until
from support.web_clients import Visitor, kept

from splatview_viewer.core.events import FileDrop
from splatview_viewer.web import files
from splatview_viewer.web import messages as m
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    import pytest


def status_of(client: socket.socket) -> int:
    return int(client.recv(4096).split()[1])


def test_files_have_folders_of_their_own_and_safe_names(
    visitor: Visitor, folder: Path
) -> None:
    """In a folder that no other user can open, until they are not needed."""
    names = {
        "../../etc/passwd": "passwd",
        "C:\\Users\\me\\point cloud.ply": "point cloud.ply",
        "": "file",
        "..": "file",
        ".bashrc": "bashrc",
        "a\0b\n\x1b[31m.png": "a-b---31m.png",
        "gnp.\u202eylp.exe": "gnp.-ylp.exe",
        "Fu\u0308\u00dfe \u72d0.ply": "F\u00fc\u00dfe \u72d0.ply",
        "x" * 500 + ".json": "x" * 200 + ".json",
        "..\\passwd": "passwd",
    }
    for given in names:
        assert visitor.post(given.encode(), given).status == 200
    paths = visitor.client.files(len(names))
    assert {path.read_text(): path.name for path in paths} == names
    assert all(
        stat.S_IMODE(path.stat().st_mode) == 0o700
        for path in (paths[0].parent, paths[0].parent.parent)
    )
    upload = visitor.client.said(FileDrop)[0]
    assert upload.done is not None
    upload.done(paths[0])
    wait_until(lambda: not paths[0].parent.exists())
    upload.done(paths[0])
    assert len(kept(folder)) == len(names) - 1


def test_hostile_pages_send_nothing(visitor: Visitor, folder: Path) -> None:
    """A form of a foreign page, a guess; a page that is gone."""
    for change in (
        {"Origin": "http://evil.example"},
        {"X-Splatview-Page": ""},
        {"X-Splatview-Page": "x" * 22},
    ):
        assert visitor.post(b"x", "a.ply", **change).status == 403
    visitor.end()
    wait_until(
        lambda: visitor.client.connection.closed and visitor.post().status == 403
    )
    assert not kept(folder) and not visitor.client.said(FileDrop)


def test_what_is_too_large_or_too_much_is_refused(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(status: int, said: str, size: int) -> None:
        answer = visitor.post(b"x" * size)
        assert answer.status == status and said in answer.text

    monkeypatch.setattr(files, "MAX_FILE", 1000)
    monkeypatch.setattr(files, "MAX_KEPT", 1600)
    refused(413, "the most", 1001)
    with visitor.begin(10**18) as client:
        assert status_of(client) == 413, "before anything of it came"
    refused(200, "", 1000)
    refused(507, "Close some in the list", 601)
    (path,) = visitor.client.files()
    done = visitor.client.said(FileDrop)[0].done
    assert done is not None
    done(path)
    refused(200, "", 601)
    wait_until(lambda: len(kept(folder)) == 1)


def test_nothing_stays_of_half_a_file(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser that is gone in the middle, one that stalls, and one that sends too much."""
    with visitor.begin(2_000_000, b"x"):
        wait_until(lambda: len(kept(folder)) == 1)
    wait_until(lambda: not kept(folder))
    monkeypatch.setattr(files, "STALL", 0.2)
    with visitor.begin(1000, b"some") as client:
        assert status_of(client) == 408
    with visitor.begin(1000, bytes(100_000)) as client, suppress(ConnectionError):
        while client.recv(4096):
            client.sendall(bytes(100_000))
    wait_until(
        lambda: sorted(path.stat().st_size for path in kept(folder)) in ([], [1000])
    )
    assert visitor.post(b"another").status == 200


def test_files_go_with_the_viewer_and_those_of_a_killed_one_with_the_next(
    folder: Path,
) -> None:
    left, used = (folder / f"splatview-files-{name}" for name in ("left", "used"))
    for path in (left, used):
        path.mkdir()
        os.utime(path, (0, 0))
    held = os.open(used, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    server = WebServer(port=0, token="secret", wake=lambda: None)
    visitor = Visitor(server)
    wait_until(lambda: not left.exists())
    os.close(held)
    assert visitor.post().status == 200
    with visitor.begin(4_000_000, b"x" * 1_500_000):
        wait_until(lambda: len(kept(folder)) == 2)
        server.close()
    visitor.end()
    assert [*folder.iterdir()] == [used]
    used.rmdir()


def test_a_file_is_offered_once_and_nothing_else_is(
    visitor: Visitor, tmp_path: Path
) -> None:
    content: Any = os.urandom(2_000_000)
    path = tmp_path / "Füchse <1>.ply"
    path.write_bytes(content)
    for given in (path, content):
        visitor.client.connection.offer(path.name, given, len(content))
        offer = visitor.receive()
        assert isinstance(offer, m.Offer) and (offer.name, offer.size) == (
            path.name,
            len(content),
        )
        answer = visitor.fetch(offer.key)
        assert answer.status == 200 and answer.body == content
        assert (
            answer.headers["Content-Disposition"] == "attachment"
            and answer.headers["Cache-Control"] == "no-store"
        )
        assert visitor.fetch(offer.key).status == 404
    visitor.client.connection.offer("gone", tmp_path / "gone", 1)
    offer = visitor.receive()
    assert isinstance(offer, m.Offer)
    for key in (offer.key, "", "../../etc/passwd"):
        assert visitor.fetch(key).status == 404
