"""Files from pages and for them, over real sockets: who may send and fetch, within which bounds, and what stays."""

from __future__ import annotations

import http.client
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.open_files import open_files
from support.wait import PATIENCE
from support.web_clients import Page
from support.web_visitors import Visitor, ask, folder_fixture, server_fixture, visitor_fixture  # noqa: F401

from splatview.viewer_app.web import uploads
from splatview.viewer_app.web.server import WebServer
from splatview.viewer_app.web.uploads import safe_name

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from support.programs import Programs


def kept(folder: Path) -> list[Path]:
    """Files that were sent and are there."""
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names
                  if Path(parent).parent.name.startswith("splatview-files-"))


def status_of(client: socket.socket) -> int:
    return int(client.recv(4096).split()[1])


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_file_comes(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """Into a folder that nobody else may look into, until it is not needed any more."""
    content = os.urandom(3_500_000)
    assert visitor.welcome.most == uploads.MAX_FILE
    assert visitor.post(content, "a scene.ply")[0] == 200
    (upload,) = wait_until(lambda: visitor.receiver.uploads)
    assert upload.path.name == "a scene.ply" and upload.path.read_bytes() == content
    assert stat.S_IMODE(upload.path.parent.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(upload.path.parent.stat().st_mode) == 0o700
    assert visitor.post(b"other", "a scene.ply")[0] == 200
    wait_until(lambda: len(visitor.receiver.uploads) == 2)
    assert upload.path.read_bytes() == content, "names may be the same"
    upload.done(upload.path)
    wait_until(lambda: not upload.path.parent.exists())
    upload.done(upload.path)
    assert len(kept(folder)) == 1


def test_nothing_is_a_file_as_well(visitor: Visitor, wait_until: Callable[..., Any]) -> None:
    assert visitor.post(b"", "empty.json")[0] == 200
    (upload,) = wait_until(lambda: visitor.receiver.uploads)
    assert upload.path.read_bytes() == b""


@pytest.mark.parametrize(("given", "name"), [
    ("scene.ply", "scene.ply"), ("../../etc/passwd", "passwd"), ("C:\\Users\\me\\point cloud.ply", "point cloud.ply"),
    ("", "file"), ("..", "file"), ("/", "file"), (".bashrc", "bashrc"), ("a\0b\nc\x1b[31m.png", "abc[31m.png"),
    ("gnp.\u202eylp.exe", "gnp.ylp.exe"), ("Fu\u0308ße 狐.ply", "Füße 狐.ply"), ("\ud800.ply", "ply"),
    ("x" * 500 + ".json", "x" * 195 + ".json"), ("狐" * 100 + ".ply", "狐" * 65 + ".ply"),
    ("name." + "y" * 300, "name." + "y" * 195),
])
def test_names(given: str, name: str) -> None:
    assert safe_name(given) == name
    assert len(name.encode()) <= 200


def test_a_name_leads_nowhere_else(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    assert visitor.post(b"evil", "../../../evil.ply")[0] == 200
    wait_until(lambda: visitor.receiver.uploads)
    assert [path.name for path in kept(folder)] == ["evil.ply"]
    assert not (folder / "evil.ply").exists()


# -- who may send ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "said"), [
    ({"Origin": "http://evil.example"}, "not 'http://evil.example'"), ({"Origin": ""}, "one Origin header"),
    ({"Origin": "null"}, "not 'null'"), ({"X-Splatview-Page": ""}, "a page that is connected"),
    ({"X-Splatview-Page": "x" * 22}, "a page that is connected"), ({"X-Splatview-Page": "\xe4"}, "a page"),
    ({"token": "wrong"}, "token"), ({"Host": "evil.example"}, "does not go by the name"),
])
def test_hostile_pages(visitor: Visitor, folder: Path, change: dict[str, Any], said: str) -> None:
    """A form of a foreign page, a name that points here, somebody who guesses."""
    status, words = visitor.post(**change)
    assert status == 403 and said in words
    assert not kept(folder) and not visitor.receiver.uploads


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "HEAD", "DELETE"])
def test_only_post(visitor: Visitor, method: str) -> None:
    status, _, answer, _ = ask(visitor.port, method, "/upload?token=secret", headers=visitor.headers())
    assert status == 405 and answer.headers["Allow"] == "POST"
    assert answer.headers.get("Access-Control-Allow-Origin") is None


def test_who_has_left_sends_nothing(visitor: Visitor, folder: Path) -> None:
    visitor.page.drop()
    assert visitor.receiver.over.wait(PATIENCE)
    assert visitor.post()[0] == 403
    assert not kept(folder)


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_too_large(visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_FILE", 1000)
    status, words = visitor.post(b"x" * 1001)
    assert status == 413 and words.startswith("scene.ply has 1 kB; 1 kB is the most")
    assert visitor.post(b"x" * 1000)[0] == 200
    with visitor.begin(10**18) as client:
        assert status_of(client) == 413, "before anything of it came"
    assert len(kept(folder)) == 1


def test_a_file_without_a_size(visitor: Visitor, folder: Path) -> None:
    client = http.client.HTTPConnection("127.0.0.1", visitor.port, timeout=PATIENCE)
    try:
        client.request("POST", "/upload?token=secret&name=a", iter([b"x"] * 3), visitor.headers(), encode_chunked=True)
        assert client.getresponse().status == 411
    finally:
        client.close()
    assert not kept(folder)


def test_all_that_is_kept_has_a_bound(visitor: Visitor, wait_until: Callable[..., Any],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_KEPT", 1000)
    assert visitor.post(b"x" * 600)[0] == 200
    status, words = visitor.post(b"x" * 600)
    assert status == 507 and "Close some in the list" in words
    (upload,) = wait_until(lambda: visitor.receiver.uploads)
    upload.done(upload.path)
    assert visitor.post(b"x" * 600)[0] == 200
    monkeypatch.setattr(uploads, "MAX_COUNT", 1)
    assert visitor.post(b"")[0] == 507


def test_two_at_a_time(visitor: Visitor, wait_until: Callable[..., Any]) -> None:
    with visitor.begin(2_000_000) as first, visitor.begin(2_000_000):
        wait_until(lambda: len(coming(visitor)) == 2)
        status, words = visitor.post()
        assert status == 503 and "2 files are being sent to this viewer already" in words
        first.sendall(b"x" * 2_000_000)
        assert status_of(first) == 200
        assert visitor.post()[0] == 200
    wait_until(lambda: not coming(visitor))


def coming(visitor: Visitor) -> dict[Path, int]:
    """Files that are on their way."""
    return visitor.server._files.uploads._coming


def test_a_full_disk(visitor: Visitor, folder: Path, monkeypatch: pytest.MonkeyPatch,
                     wait_until: Callable[..., Any]) -> None:
    """Known before it begins, or only while it is written."""
    with monkeypatch.context() as changed:
        changed.setattr(uploads, "SPARE", 10**18)
        status, words = visitor.post()
        assert status == 507 and "0 bytes are free" in words
    limited = "/dev/full"
    original = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **options:
                        open(limited, "wb") if self.name == "full.ply" else original(self, *args, **options))
    status, words = visitor.post(b"x" * 3_000_000, "full.ply")
    assert status == 507 and "no room for full.ply on the disk" in words
    wait_until(lambda: not list(folder.glob("splatview-files-*/1")))
    assert visitor.post(b"small")[0] == 200
    wait_until(lambda: len(kept(folder)) == 1)


# -- ends in the middle ------------------------------------------------------------------------------------------------


def test_half_a_file(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    """The browser is gone in the middle of it: nothing stays."""
    assert visitor.post()[0] == 200  # the folder's lock is held from now on
    before = open_files()
    client = visitor.begin(10_000_000, b"x" * 4_000_000)
    wait_until(lambda: len(kept(folder)) == 2 and kept(folder)[1].stat().st_size >= 1_000_000)
    client.close()
    wait_until(lambda: len(kept(folder)) == 1 and not coming(visitor))
    assert len(visitor.receiver.uploads) == 1
    wait_until(lambda: open_files() <= before)


def test_a_file_that_does_not_go_on(visitor: Visitor, folder: Path, wait_until: Callable[..., Any],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "STALL", 0.2)
    with visitor.begin(1000, b"some") as client:
        assert status_of(client) == 408
    wait_until(lambda: not kept(folder) and not coming(visitor))


def test_the_page_leaves_meanwhile(visitor: Visitor, folder: Path, wait_until: Callable[..., Any]) -> None:
    with visitor.begin(4_000_000, b"x" * 1_500_000) as client:
        wait_until(lambda: kept(folder))
        visitor.page.drop()
        assert visitor.receiver.over.wait(PATIENCE)
        client.sendall(b"x" * 2_500_000)
        assert status_of(client) == 410
    wait_until(lambda: not kept(folder))


def test_nobody_takes_the_file(server: WebServer, folder: Path, wait_until: Callable[..., Any]) -> None:
    """The page leaves before anybody was there for it."""
    with Page(server.port) as page:
        page.connect(token="secret")
        welcome = page.greet()
        (connection,) = wait_until(server.arrivals)
        headers = {"Origin": f"http://127.0.0.1:{server.port}", "X-Splatview-Page": welcome.key}
        assert ask(server.port, "POST", "/upload?token=secret&name=a", b"x", headers)[0] == 200
        assert len(kept(folder)) == 1
        page.drop()
        wait_until(lambda: connection.closed and not kept(folder))


def test_the_viewer_ends_meanwhile(folder: Path, wait_until: Callable[..., Any]) -> None:
    server = WebServer(port=0, token="secret", wake=lambda: None)
    visitor = Visitor(server, wait_until)
    try:
        assert visitor.post()[0] == 200
        with visitor.begin(4_000_000, b"x" * 1_500_000):
            wait_until(lambda: len(kept(folder)) == 2)
            server.close()
        assert not list(folder.iterdir())
        server.close()
    finally:
        server.close()
        visitor.page.end()


def test_what_a_killed_viewer_has_left_is_removed(visitor: Visitor, folder: Path) -> None:
    left, used, foreign = (folder / f"splatview-files-{name}" for name in ("left", "used", "foreign"))
    young = folder / ".splatview-files-young"
    for path in (left, used, young, foreign):
        (path / "1").mkdir(parents=True)
        (path / "1" / "scene.ply").write_bytes(b"x")
        if path is not foreign:
            (path / "lock").touch()
        if path is not young:
            os.utime(path, (time.time() - 3600, time.time() - 3600))
    import fcntl

    with (used / "lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert visitor.post()[0] == 200
    assert not left.exists() and used.exists() and young.exists() and foreign.exists()
    for path in (used, young, foreign):
        os.rename(path, folder / path.name.replace("splatview", "other"))


def test_uploads_of_a_killed_viewer_go_when_the_next_one_begins(
        folder: Path, programs: Programs, wait_until: Callable[..., Any]) -> None:
    process = programs.code("""
import sys, tempfile
from pathlib import Path
from splatview.viewer_app.web import uploads
folder, held = uploads._make_folder(Path(sys.argv[1]))
(folder / "1").mkdir()
(folder / "1" / "scene.ply").write_bytes(bytes(1000))
print(folder, flush=True)
sys.stdin.read()
""", str(folder))
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    assert left.is_dir()
    uploads._sweep(folder)
    assert left.is_dir(), "its viewer lives"
    process.kill()
    process.wait()
    server = WebServer(port=0, token="secret", wake=lambda: None)
    try:
        wait_until(lambda: not left.exists(), what="it is removed although no file comes")
    finally:
        server.close()


def test_uploads_of_many_killed_viewers_are_removed_without_links(folder: Path, tmp_path_factory: Any) -> None:
    """What a hostile user could put there is not followed, and what has been begun lately stays."""
    other = tmp_path_factory.mktemp("other")
    (other / "lock").touch()
    (folder / "splatview-files-link").symlink_to(other)
    empty, begun = folder / ".splatview-files-empty", folder / ".splatview-files-begun"
    empty.mkdir()
    begun.mkdir()
    os.utime(empty, (time.time() - 3600, time.time() - 3600))
    for number in range(uploads._MOST_LEFT + 5):
        path = folder / f"splatview-files-{number}"
        path.mkdir()
        (path / "lock").touch()
    uploads._sweep(folder)
    assert len(list(folder.glob("splatview-files-[0-9]*"))) == 5, "in steps"
    uploads._sweep(folder)
    assert {path.name for path in folder.iterdir()} == {"splatview-files-link", begun.name}
    assert (other / "lock").exists()
    (folder / "splatview-files-link").unlink()
