"""Uploads and downloads over real sockets: access, bounds, and what stays on disk."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.wait import polls, wait_until
from support.web_clients import Visitor, uploaded_files, wait_for_uploads

from splatview_viewer.core.events import FileDrop
from splatview_viewer.web import files
from splatview_viewer.web import messages as m
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    import pytest


def status_of(client: socket.socket) -> int:
    return int(client.recv(4096).split()[1])


def test_files_have_folders_of_their_own_and_safe_names(
    visitor: Visitor, folder: Path
) -> None:
    """No other user can open the folder of a file, which goes once it is not needed."""
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
    for name in names:
        assert visitor.post(name.encode(), name).status == 200
    paths = visitor.client.files(len(names))
    assert {path.read_text(): path.name for path in paths} == names
    for path in (paths[0].parent, paths[0].parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    upload = visitor.client.received(FileDrop)[0]
    assert upload.done is not None
    upload.done(paths[0])
    wait_until(lambda: not paths[0].parent.exists())
    upload.done(paths[0])
    assert len(uploaded_files(folder)) == len(names) - 1


def test_hostile_pages_send_nothing(visitor: Visitor, folder: Path) -> None:
    """Forms of foreign pages, guesses, and pages that are gone are refused."""
    for change in (
        {"Origin": "http://evil.example"},
        {"X-Splatview-Page": ""},
        {"X-Splatview-Page": "x" * 22},
    ):
        assert visitor.post(b"x", "a.ply", **change).status == 403
    visitor.end()
    wait_until(lambda: visitor.client.connection.closed)
    wait_until(lambda: visitor.post().status == 403)
    assert not uploaded_files(folder)
    assert not visitor.client.received(FileDrop)


def test_uploads_over_the_limits_are_refused(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(status: int, phrase: str, size: int) -> None:
        answer = visitor.post(b"x" * size)
        assert answer.status == status
        assert phrase in answer.text

    monkeypatch.setattr(files, "MAX_FILE", 1000)
    monkeypatch.setattr(files, "MAX_KEPT", 1600)
    refused(413, "the most", 1001)
    with visitor.start_upload(10**18) as client:
        assert status_of(client) == 413, "before any of its bytes came"
    refused(200, "", 1000)
    refused(507, "Close some in the list", 601)
    (path,) = visitor.client.files()
    done = visitor.client.received(FileDrop)[0].done
    assert done is not None
    done(path)
    refused(200, "", 601)
    wait_for_uploads(folder, 1)


def test_incomplete_upload_leaves_no_file(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser that is gone in the middle, one that stalls, and one that sends too
    much.
    """
    with visitor.start_upload(2_000_000, b"x"):
        wait_for_uploads(folder, 1)
    wait_for_uploads(folder, 0)
    monkeypatch.setattr(files, "STALL", 0.2)
    with visitor.start_upload(1000, b"some") as client:
        assert status_of(client) == 408
    with (
        visitor.start_upload(1000, bytes(100_000)) as client,
        suppress(ConnectionError),
    ):
        while client.recv(4096):
            client.sendall(bytes(100_000))

    def is_cleared() -> bool:
        sizes = [path.stat().st_size for path in uploaded_files(folder)]
        return sizes in ([], [1000])

    wait_until(is_cleared)
    assert visitor.post(b"another").status == 200


def test_concurrent_uploads_are_bounded(
    join: Callable[..., Visitor], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads of a page and of all are bounded; one that ends or stalls frees its slot."""
    monkeypatch.setattr(files, "MAX_COMING", 5)
    first = join()
    second = join()
    with ExitStack() as opened:

        def start_upload(page: Visitor) -> socket.socket:
            return opened.enter_context(page.start_upload(1000, b"some"))

        uploads = [start_upload(first) for _ in range(files.MAX_COMING_OF_PAGE)]
        wait_for_uploads(folder, len(uploads))
        answer = first.post()
        assert answer.status == 429
        assert "on their way" in answer.text
        assert answer.headers["Retry-After"]
        assert second.post().status == 200, "another page has places of its own"
        start_upload(second)
        wait_for_uploads(folder, 6)
        assert second.post().status == 429
        for client in uploads[:2]:
            client.close()
        wait_for_uploads(folder, 4)
        assert first.post().status == second.post().status == 200
    wait_for_uploads(folder, 3)


def test_number_of_kept_files_is_bounded(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    for _ in range(3):
        assert visitor.post(b"").status == 200
    answer = visitor.post(b"")
    assert answer.status == 429
    assert "Close some in the list" in answer.text
    drop = visitor.client.received(FileDrop)[0]
    assert drop.done is not None
    drop.done(Path(drop.paths[0]))
    assert visitor.post(b"").status == 200


def test_upload_that_stalls_releases_its_slot_and_space(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Announced bytes take no space, and single bytes are no progress."""
    monkeypatch.setattr(files, "STALL", 0.3)
    monkeypatch.setattr(files, "MAX_KEPT", 1000)
    with visitor.start_upload(1000, b"x") as client:
        wait_for_uploads(folder, 1)
        assert visitor.post(b"x" * 900).status == 200, "the room is not taken yet"
        client.settimeout(0.02)
        answer = b""
        for _ in polls("the upload ends"):
            with suppress(TimeoutError):
                answer = client.recv(4096)
            if answer:
                break
            client.sendall(b"x")
        assert answer.split()[1] == b"408"
        assert b"too slowly" in answer


def test_upload_that_exceeds_the_space_meanwhile_is_refused(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_KEPT", 100)
    with (
        visitor.start_upload(60, b"x" * 30) as first,
        visitor.start_upload(60, b"x" * 30) as second,
    ):
        wait_for_uploads(folder, 2)
        first.sendall(b"x" * 30)
        assert status_of(first) == 200
        second.sendall(b"x" * 30)
        assert status_of(second) == 507
    wait_for_uploads(folder, 1)


def test_uploads_take_no_thread_each(
    visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads start no thread, neither while they come nor when they go."""
    started: list[str] = []
    start = threading.Thread.start

    def count(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", count)
    for _ in range(20):
        assert visitor.post().status == 200
    for drop in visitor.client.received(FileDrop):
        assert drop.done is not None
        drop.done(Path(drop.paths[0]))
    wait_for_uploads(folder, 0)
    assert len(started) <= 4, started


def ignore_wake() -> None:
    """Stand for the wake-up call of a loop that does not run."""


def test_files_go_with_the_viewer_and_those_of_a_killed_one_with_the_next(
    folder: Path,
) -> None:
    left, used, users = (
        folder / f"splatview-files-{name}" for name in ("left", "used", "of-mine")
    )
    (left / "1").mkdir(parents=True)
    (left / "1" / "scene.ply").write_bytes(b"content")
    used.mkdir()
    users.mkdir()
    (users / "thesis.txt").write_text("the user's own, by that name")
    for path in (left, used, users):
        os.utime(path, (0, 0))
    descriptor = os.open(used, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    server = WebServer(port=0, token="secret", wake=ignore_wake)
    visitor = Visitor(server)
    wait_until(lambda: not left.exists())
    os.close(descriptor)
    assert visitor.post().status == 200
    with visitor.start_upload(4_000_000, b"x" * 1_500_000):
        wait_for_uploads(folder, 3)
        server.close()
    visitor.end()
    assert {*folder.iterdir()} == {used, users}
    assert [*users.iterdir()]


def test_only_offered_files_are_served_and_only_once(
    visitor: Visitor, tmp_path: Path
) -> None:
    content: Any = os.urandom(2_000_000)
    path = tmp_path / "Füchse <1>.ply"
    path.write_bytes(content)
    for source in (path, content):
        visitor.client.connection.offer(path.name, source, len(content))
        offer = visitor.receive()
        assert isinstance(offer, m.Offer)
        assert (offer.name, offer.size) == (
            path.name,
            len(content),
        )
        answer = visitor.fetch(offer.key)
        assert answer.status == 200
        assert answer.body == content
        assert answer.headers["Content-Disposition"] == "attachment"
        assert answer.headers["Cache-Control"] == "no-store"
        assert visitor.fetch(offer.key).status == 404
    visitor.client.connection.offer("gone", tmp_path / "gone", 1)
    offer = visitor.receive()
    assert isinstance(offer, m.Offer)
    for key in (offer.key, "", "../../etc/passwd"):
        assert visitor.fetch(key).status == 404
