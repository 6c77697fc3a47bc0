"""What is printed when the viewer serves a browser."""

from __future__ import annotations

import os
import pwd
import re
import socket
from dataclasses import dataclass

import pytest

from splatview.viewer_app.web import address
from splatview.viewer_app.web.server import WebServer


@dataclass
class Server:
    """What a server says of itself; to listen at chosen ports and addresses is no test's business."""

    host: str = "127.0.0.1"
    port: int = 7007
    token: str = "x"
    moved_from: int | None = None


SSH = "203.0.113.9 50000 198.51.100.4 22"


def lines(server: object, **environ: str) -> list[str]:
    return address.lines(server, environ)  # pyright: ignore[reportArgumentType]


def test_this_machine() -> None:
    assert lines(Server()) == ["splatview: open http://127.0.0.1:7007/?token=x in a browser"]


def test_of_a_real_server() -> None:
    first = WebServer(port=0, wake=lambda: None)
    second = WebServer(port=first.port, token="abc", wake=lambda: None)
    try:
        assert address.local_url(second) == f"http://127.0.0.1:{second.port}/?token=abc"
        assert lines(second) == [f"splatview: port {first.port} is taken; using {second.port}",
                                 f"splatview: open http://127.0.0.1:{second.port}/?token=abc in a browser"]
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize(("host", "url"), [
    ("localhost", "http://localhost:7007"), ("::1", "http://[::1]:7007"), ("0.0.0.0", "http://127.0.0.1:7007"),
    ("::", "http://127.0.0.1:7007"), ("192.168.1.5", "http://192.168.1.5:7007"),
])
def test_addresses(host: str, url: str) -> None:
    assert address.local_url(Server(host)) == f"{url}/?token=x"  # pyright: ignore[reportArgumentType]


def test_other_machines() -> None:
    first, *others = lines(Server("0.0.0.0", token="a_-1"))
    assert first == "splatview: open http://127.0.0.1:7007/?token=a_-1 in a browser"
    urls = [re.fullmatch(r"splatview: or, from another machine, http://(\S+):7007/\?token=a_-1", o) for o in others]
    assert urls[0] is not None and urls[0][1] == socket.gethostname()
    assert all(url is not None and url[1] != "127.0.0.1" and ":" not in url[1] for url in urls)


def test_one_address_is_said_once() -> None:
    assert lines(Server("192.168.1.5", token="x")) == [
        "splatview: open http://192.168.1.5:7007/?token=x in a browser"]


@pytest.mark.parametrize(("server", "ssh", "command", "url"), [
    (Server(), SSH, "ssh -L 7007:127.0.0.1:7007 ada@198.51.100.4", "http://127.0.0.1:7007/?token=x"),
    (Server(port=7009), "203.0.113.9 50000 198.51.100.4 2222", "ssh -L 7009:127.0.0.1:7009 -p 2222 ada@198.51.100.4",
     "http://127.0.0.1:7009/?token=x"),
    (Server("0.0.0.0", token="abc"), SSH, "ssh -L 7007:127.0.0.1:7007 ada@198.51.100.4",
     "http://127.0.0.1:7007/?token=abc"),
    (Server("192.168.1.5", token="abc"), SSH, "ssh -L 7007:192.168.1.5:7007 ada@198.51.100.4",
     "http://127.0.0.1:7007/?token=abc"),
    (Server("::1"), "2001:db8::9 50000 2001:db8::4 22", "ssh -L '7007:[::1]:7007' ada@2001:db8::4",
     "http://127.0.0.1:7007/?token=x"),
])
def test_the_tunnel(server: Server, ssh: str, command: str, url: str) -> None:
    said = lines(server, SSH_CONNECTION=ssh, USER="ada")
    assert said[-2:] == [f"    {command}", f"  and open {url} there"]
    assert "SSH" in said[-3]


def test_whose_it_is() -> None:
    assert "bob@198" in lines(Server(), SSH_CONNECTION=SSH, LOGNAME="bob")[-2]
    assert f"{pwd.getpwuid(os.getuid()).pw_name}@198" in lines(Server(), SSH_CONNECTION=SSH)[-2]


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> object:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert lines(Server(), SSH_CONNECTION=SSH)[-2] == "    ssh -L 7007:127.0.0.1:7007 198.51.100.4"


def test_what_is_printed_can_be_typed() -> None:
    assert "'a b;c@198.51.100.4'" in lines(Server(), SSH_CONNECTION=SSH, USER="a b;c")[-2]


@pytest.mark.parametrize("ssh", ["", "UNKNOWN", "1 2 3"])
def test_no_session(ssh: str) -> None:
    assert len(lines(Server(), SSH_CONNECTION=ssh)) == 1
