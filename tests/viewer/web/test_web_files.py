"""Files from pages and for them, over real sockets: who may send and fetch, within which bounds, and what stays."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from support.web_visitors import Visitor, ask, fetch, kept

from splatview_viewer.web import files
from splatview_viewer.web import messages as m
from splatview_viewer.web.files import safe_name

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


def status_of(client: socket.socket) -> int:
    return int(client.recv(4096).split()[1])


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_file_comes(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """Into a folder that no other user can open, until it is not needed any more."""
    content = os.urandom(3_500_000)
    assert visitor.most == files.MAX_FILE
    assert visitor.post(content, "a scene.ply")[0] == 200
    (upload,) = wait_until(lambda: visitor.uploads)
    path = Path(upload.paths[0])
    assert path.name == "a scene.ply" and path.read_bytes() == content
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert visitor.post(b"other", "a scene.ply")[0] == 200
    wait_until(lambda: len(visitor.uploads) == 2)
    assert path.read_bytes() == content, "names may be the same"
    assert upload.done is not None
    upload.done(path)
    wait_until(lambda: not path.parent.exists())
    upload.done(path)
    assert len(kept(folder)) == 1


@pytest.mark.parametrize(("given", "name"), [
    ("scene.ply", "scene.ply"), ("../../etc/passwd", "passwd"), ("C:\\Users\\me\\point cloud.ply", "point cloud.ply"),
    ("", "file"), ("..", "file"), (".bashrc", "bashrc"), ("a\0b\nc\x1b[31m.png", "abc[31m.png"),
    ("gnp.\u202eylp.exe", "gnp.ylp.exe"), ("Fu\u0308\u00dfe \u72d0.ply", "F\u00fc\u00dfe \u72d0.ply"),
    ("x" * 500 + ".json", "x" * 195 + ".json"), ("\u72d0" * 100 + ".ply", "\u72d0" * 65 + ".ply"),
])
def test_names(given: str, name: str) -> None:
    assert safe_name(given) == name
    assert len(name.encode()) <= 200


# -- who may send ------------------------------------------------------------------------------------------------------


def test_hostile_pages(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """A form of a foreign page, a name that points here, a guess."""
    changes: list[tuple[dict[str, Any], str]] = [
        ({"Origin": "http://evil.example"}, "not 'http://evil.example'"), ({"Origin": ""}, "one Origin header"),
        ({"Origin": "null"}, "not 'null'"), ({"X-Splatview-Page": ""}, "a page that is connected"),
        ({"X-Splatview-Page": "x" * 22}, "a page that is connected"), ({"X-Splatview-Page": "\xe4"}, "a page"),
        ({"token": "wrong"}, "token"), ({"Host": "evil.example"}, "does not go by the name")]
    for change, said in changes:
        status, words = visitor.post(**change)
        assert status == 403 and said in words
    visitor.page.drop()
    wait_until(lambda: visitor.connection.closed)
    assert visitor.post()[0] == 403, "of a page that is gone"
    assert not kept(folder) and not visitor.uploads


def test_only_post(visitor: Visitor) -> None:
    for method in ("GET", "PUT", "OPTIONS", "HEAD", "DELETE"):
        status, _, answer, _ = ask(visitor.port, method, "/upload?token=secret", headers=visitor.headers())
        assert status == 405 and answer.headers["Allow"] == "POST"
        assert answer.headers.get("Access-Control-Allow-Origin") is None


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_too_large(visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE", 1000)
    status, words = visitor.post(b"x" * 1001)
    assert status == 413 and words.startswith("scene.ply has 1 kB; 1 kB is the most")
    assert visitor.post(b"x" * 1000)[0] == 200
    with visitor.begin(10**18) as client:
        assert status_of(client) == 413, "before anything of it came"
    assert len(kept(folder)) == 1


def test_all_that_is_kept_has_a_bound(visitor: Visitor, wait_until: Callable[..., Any],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_KEPT", 1000)
    assert visitor.post(b"x" * 600)[0] == 200
    status, words = visitor.post(b"x" * 600)
    assert status == 507 and "Close some in the list" in words
    (upload,) = wait_until(lambda: visitor.uploads)
    assert upload.done is not None
    upload.done(Path(upload.paths[0]))
    assert visitor.post(b"x" * 600)[0] == 200
    monkeypatch.setattr(files, "MAX_COUNT", 1)
    assert visitor.post(b"")[0] == 507


def test_two_at_a_time(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """A third one waits."""
    with visitor.begin(2_000_000, b"x") as first, visitor.begin(2_000_000, b"x"):
        wait_until(lambda: len(kept(folder)) == 2)
        with visitor.begin(1, b"x") as third:
            first.sendall(b"x" * 1_999_999)
            assert status_of(first) == status_of(third) == 200
    wait_until(lambda: len(kept(folder)) == 2)  # the one that was sent in part is gone


def test_a_full_disk(visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch,
                     wait_until: Callable[..., Any]) -> None:
    """Known before it begins, or only while it is written."""
    with monkeypatch.context() as changed:
        changed.setattr(files, "SPARE", 10**18)
        status, words = visitor.post()
        assert status == 507 and "0 bytes are free" in words
    limited = "/dev/full"
    original = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **options:
                        open(limited, "wb") if self.name == "full.ply" else original(self, *args, **options))
    status, words = visitor.post(b"x" * 3_000_000, "full.ply")
    assert status == 507 and "no room for full.ply on the disk" in words
    assert visitor.post(b"small")[0] == 200
    wait_until(lambda: len(kept(folder)) == 1)


# -- ends in the middle ------------------------------------------------------------------------------------------------


def test_half_a_file(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """The browser is gone in the middle of it: nothing stays."""
    with visitor.begin(10_000_000, b"x" * 4_000_000):
        wait_until(lambda: kept(folder) and kept(folder)[0].stat().st_size >= 1_000_000)
    wait_until(lambda: not kept(folder))
    assert not visitor.uploads


def test_a_file_that_does_not_go_on(visitor: Visitor, folder: Path, wait_until: Callable[..., Any],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STALL", 0.2)
    with visitor.begin(1000, b"some") as client:
        assert status_of(client) == 408
    wait_until(lambda: not kept(folder))


def test_more_than_its_size_is_not_part_of_a_file(visitor: Visitor, folder: Path) -> None:
    """No more is written, and the connection is dropped."""
    with visitor.begin(1000, bytes(100_000)) as one:
        try:
            while one.recv(4096):
                one.sendall(bytes(100_000))
        except ConnectionError:
            pass
    assert all(file.stat().st_size <= 1000 for file in kept(folder))
    assert visitor.post(b"another")[0] == 200


def test_the_viewer_ends_meanwhile(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    assert visitor.post()[0] == 200
    with visitor.begin(4_000_000, b"x" * 1_500_000):
        wait_until(lambda: len(kept(folder)) == 2)
        visitor.server.close()
    assert not list(folder.iterdir())


def test_what_a_killed_viewer_has_left_is_removed(visitor: Visitor, folder: Path) -> None:
    left, used, young = (folder / f"splatview-files-{name}" for name in ("left", "used", "young"))
    for path in (left, used, young):
        (path / "1").mkdir(parents=True)
        (path / "1" / "scene.ply").write_bytes(b"x")
        if path is not young:
            os.utime(path, (0, 0))
    held = os.open(used, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert visitor.post()[0] == 200
    os.close(held)
    assert not left.exists() and used.exists() and young.exists()
    for path in (used, young):
        os.rename(path, folder / path.name.replace("splatview", "other"))


# -- what is fetched ---------------------------------------------------------------------------------------------------


def test_a_file_is_offered_once(visitor: Visitor, tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    path = tmp_path / "Füchse <1>.ply"
    path.write_bytes(content)
    visitor.connection.offer(path.name, path, len(content))
    offer = visitor.page.receive()
    assert isinstance(offer, m.Offer) and (offer.name, offer.size) == (path.name, len(content))
    assert fetch(visitor, offer.key, "wrong")[0] == ask(visitor.port, "GET", f"/download?key={offer.key}")[0] == 403
    assert fetch(visitor, offer.key, Host="evil.example")[0] == 403
    assert ask(visitor.port, "POST", f"/download?token=secret&key={offer.key}", b"")[0] == 405
    status, _, answer, got = fetch(visitor, offer.key)
    assert status == 200 and got == content
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers.get_content_type() == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
    assert fetch(visitor, offer.key)[0] == 404
    assert path.exists()


def test_what_is_not_offered(visitor: Visitor, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    visitor.connection.offer("a", tmp_path / "a", 1)
    for key in ("", "x", "../../etc/passwd", "a" * 5000):
        status, words, *_ = fetch(visitor, quote(key))
        assert status == 404 and "not offered" in words
