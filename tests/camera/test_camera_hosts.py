"""Network sources: only the host that was named is reached, unless others are to be
followed.
"""

from __future__ import annotations

import http.server
import os
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.videos import write_video

from splatview.camera.only_host import Connections, rtsp_leads_to
from splatview.camera.opencv import OpenCVSource
from splatview.camera.sources import CaptureError, CaptureSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLAYLIST = (
    "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n"
    "#EXTINF:0.4,\n{}\n#EXT-X-ENDLIST\n"
)
SESSION = (
    "v=0\no=- 0 0 IN IP4 127.0.0.2\ns=x\nc=IN IP4 127.0.0.2\nt=0 0\n"
    "m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"
)
FILM = "video/mp2t"
HLS = "application/vnd.apple.mpegurl"
PICTURES = 12


class Server(http.server.ThreadingHTTPServer):
    """Answers paths with a content type and content, or with a redirect; notes what it
    is asked for.
    """

    daemon_threads = True

    def __init__(self, address: str) -> None:
        self.answers: dict[str, tuple[str, str | bytes]] = {}
        self.requests: list[str] = []
        super().__init__((address, 0), Handler)
        self.host_and_port = address, int(self.server_address[1])
        self.url = f"http://{address}:{self.host_and_port[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        kind, content = self.server.answers.get(self.path, ("", b""))
        if isinstance(content, str):
            body = content.encode()
        else:
            body = content
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", body.decode())
            body = b""
        else:
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_video(tmp_path_factory.mktemp("film") / "a.ts").read_bytes()


@pytest.fixture
def other_server(film: bytes) -> Iterator[Server]:
    """Another host: another address of this machine."""
    with running(Server("127.0.0.2")) as server:
        server.answers["/a.ts"] = FILM, film
        yield server


@pytest.fixture
def named_server(other_server: Server, film: bytes) -> Iterator[Server]:
    """The host that is named."""
    with running(Server("127.0.0.1")) as server:
        server.answers = {
            "/a.ts": (FILM, film),
            "/moved": ("redirect", "/a.ts"),
            "/own.m3u8": (HLS, PLAYLIST.format("a.ts")),
            "/away": ("redirect", f"{other_server.url}/a.ts"),
            "/away.ts": ("redirect", f"{other_server.url}/a.ts"),
            "/away.m3u8": (HLS, PLAYLIST.format(f"{other_server.url}/a.ts")),
            "/unnamed": (HLS, PLAYLIST.format(f"{other_server.url}/a.ts")),
            "/twice.m3u8": (HLS, PLAYLIST.format("away.ts")),
            "/a.sdp": ("application/sdp", SESSION),
            "/a.ffconcat": (
                "text/plain",
                f"ffconcat version 1.0\nfile {other_server.url}/a",
            ),
        }
        yield server


def count(address: str, *, follow: bool = False) -> tuple[int, str]:
    """Pictures that come from an address, and the error that ends it."""
    source = OpenCVSource(CaptureSettings(source=address, patience=3, follow=follow))
    pictures = 0
    try:
        source.open()
        while source.grab() is not None:
            pictures += 1
    except CaptureError as e:
        return pictures, str(e)
    finally:
        source.close()
    return pictures, ""


@pytest.mark.parametrize("path", ["/away", "/away.m3u8", "/unnamed", "/twice.m3u8"])
def test_only_the_named_host_is_reached(
    named_server: Server, other_server: Server, path: str
) -> None:
    pictures, error = count(named_server.url + path)
    assert pictures == 0
    assert not other_server.requests
    assert "another host, 127.0.0.2" in error
    assert "--follow" in error
    assert count(named_server.url + path, follow=True)[0] == PICTURES
    assert other_server.requests


@pytest.mark.parametrize("path", ["/a.ts", "/moved", "/own.m3u8"])
def test_named_host_may_redirect_to_itself(named_server: Server, path: str) -> None:
    pictures, error = count(named_server.url + path)
    assert pictures == PICTURES
    assert "another host" not in error


@pytest.mark.parametrize("path", ["/a.sdp", "/a.ffconcat", "/file.m3u8"])
def test_no_playlist_leads_to_other_protocols(
    named_server: Server, other_server: Server, path: str, tmp_path: Path, film: bytes
) -> None:
    (tmp_path / "a.ts").write_bytes(film)
    named_server.answers["/file.m3u8"] = HLS, PLAYLIST.format(f"file://{tmp_path}/a.ts")
    pictures, error = count(named_server.url + path)
    assert pictures == 0
    assert "gives nothing" in error
    assert not other_server.requests


def test_playlist_that_is_no_http_reaches_nothing(
    named_server: Server, other_server: Server
) -> None:
    """Raw TCP whose content names addresses."""
    content = PLAYLIST.format(f"{other_server.url}/a.ts").encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(content)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert count(f"tcp://127.0.0.1:{server.getsockname()[1]}/a.m3u8")[0] == 0
        thread.join()
    assert not other_server.requests


def test_environment_is_restored(
    named_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "x.example")
    saved = dict(os.environ)
    threads = threading.active_count()
    source = OpenCVSource(CaptureSettings(source=f"{named_server.url}/a.ts"))
    source.open()
    source.open()
    source.close()
    log_level = {"OPENCV_FFMPEG_LOGLEVEL"}
    changed = set(os.environ.items()) ^ set(saved.items())
    assert {name for name, _ in changed} <= log_level
    assert threading.active_count() <= threads


def test_users_own_proxy_is_used_for_the_named_host(
    named_server: Server,
    other_server: Server,
    film: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(Server("127.0.0.3")) as proxy:
        proxy.answers = {
            "http://camera.example:80/a.ts": (FILM, film),
            "http://camera.example:80/away": ("redirect", f"{other_server.url}/a.ts"),
        }
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "localhost, 127.0.0.1")
        assert count("http://camera.example/a.ts")[0] == PICTURES
        assert "another host" in count("http://camera.example/away")[1]
        assert {*proxy.requests} == {*proxy.answers}
        assert not other_server.requests
        assert count(f"{named_server.url}/a.ts")[0] == PICTURES
        assert {*proxy.requests} == {*proxy.answers}, "reached without the proxy"


class RtspServer:
    """Answers each request by `answer`, of its first line; notes these lines."""

    def __init__(self, address: str, answer: Callable[[str], str]) -> None:
        self.requests: list[str] = []
        self._answer = answer
        self._listener = socket.create_server((address, 0))
        self.url = f"rtsp://{address}:{self._listener.getsockname()[1]}/a"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while request_line := requests.readline().decode().strip():
                self.requests.append(request_line)
                sequence = ""
                while line := requests.readline().decode().strip():
                    if line.lower().startswith("cseq"):
                        sequence = line
                answer = self._answer(request_line)
                connection.sendall(f"RTSP/1.0 {answer}\r\n{sequence}\r\n\r\n".encode())

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize("method", ["OPTIONS", "DESCRIBE"])
def test_rtsp_servers_redirect_to_no_other_host(method: str) -> None:
    def refuse(_: str) -> str:
        return "404 Not Found"

    other_server = RtspServer("127.0.0.2", refuse)

    def redirect(line: str) -> str:
        if line.startswith(method):
            return f"302 Moved\r\nLocation: {other_server.url}"
        return "200 OK\r\nPublic: DESCRIBE, SETUP, PLAY"

    named_server = RtspServer("127.0.0.1", redirect)
    try:
        source = OpenCVSource(CaptureSettings(source=named_server.url, patience=3))
        for _ in range(2):  # it is tried again
            with pytest.raises(CaptureError, match=r"another host, 127\.0\.0\.2"):
                source.open()
        assert named_server.requests
        assert not other_server.requests
        with pytest.raises(CaptureError):
            count_following = CaptureSettings(
                source=named_server.url, patience=3, follow=True
            )
            OpenCVSource(count_following).open()
        assert other_server.requests
    finally:
        named_server.close()
        other_server.close()


def test_rtsp_servers_that_drip_are_not_waited_for() -> None:
    """Each byte comes in time, the answer never."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with server.accept()[0] as connection, suppress(OSError):
                connection.settimeout(0.02)
                while True:
                    connection.sendall(b"R")
                    with suppress(TimeoutError):
                        connection.recv(4096)

        threading.Thread(target=drip, daemon=True).start()
        url = f"rtsp://127.0.0.1:{server.getsockname()[1]}/a"
        assert rtsp_leads_to(url, 0.3) == ""


def test_peers_that_are_not_the_named_host_are_found(
    named_server: Server, other_server: Server
) -> None:
    connections = Connections()
    assert connections.foreign(named_server.url) == ""
    with socket.create_connection(named_server.host_and_port):
        assert connections.foreign(named_server.url) == ""
        with socket.create_connection(other_server.host_and_port):
            assert connections.foreign(named_server.url) == "127.0.0.2"
            assert connections.foreign(other_server.url) in ("127.0.0.1", "")
            assert Connections().foreign(named_server.url) == "", "opened before"
