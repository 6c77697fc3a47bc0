"""Which requests the web server answers, and the address that it prints."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

import pytest

from splatview_viewer.web import address, guard

HOME = guard.rules_for("127.0.0.1", "secret")
OPEN = guard.rules_for("0.0.0.0", "secret")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7007", "LocalHost:65535", "localhost.:80", "[::1]:7007"])
def test_own_names_under_any_port(host: str) -> None:
    assert guard.refuse_host(HOME, [host]) == ""
    assert guard.refuse_host(OPEN, [host]) == ""


OTHER_NAMES = [
    "evil.example", "evil.example:7007", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost", "", " ",
    "127.0.0.1:70000", "127.0.0.1:", "127.0.0.1:7007:1", "[::1", "[localhost]", "::1", "127.0.0.1@evil.example",
    "127.0.0.1,evil.example", "127.0.0.1\n", "127.0.0.1/", "http://127.0.0.1", "\uff11\uff12\uff17.0.0.1",
    "[evil.example]",
]


def test_other_names() -> None:
    for host in OTHER_NAMES:
        assert "name" in guard.refuse_host(HOME, [host]), host
        assert "name" in guard.refuse_host(OPEN, [host]), host


@pytest.mark.parametrize("host", ["192.168.7.5", "[2001:db8::1]:7007", socket.gethostname(),
                                  socket.gethostname().upper() + ":7007", "0.0.0.0:7007"])
def test_addresses_and_the_machines_name_where_others_may_come(host: str) -> None:
    assert guard.refuse_host(OPEN, [host]) == ""
    if host.partition(":")[0].lower() not in guard.LOOPBACK:
        assert guard.refuse_host(HOME, [host])


@pytest.mark.parametrize("headers", [[], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1", "evil.example"]])
def test_one_host(headers: list[str]) -> None:
    assert "one Host header" in guard.refuse_host(HOME, headers)


def test_a_refusal_says_what_to_do_and_repeats_no_markup() -> None:
    for rules in (HOME, OPEN):
        reason = guard.refuse_host(rules, ["<b>\x1b[31m" + "x" * 500])
        assert "--host" in reason
        assert len(reason) < 400
        assert "\x1b" not in reason


@pytest.mark.parametrize("host", ["127.0.0.1:7007", "localhost:8000", "[::1]:7007", "gpu"])
def test_the_viewers_own_page(host: str) -> None:
    for scheme in ("http", "https", "HTTP"):
        assert guard.refuse_origin(host, [f"{scheme}://{host.upper()}"]) == ""


FOREIGN = [
    [], ["null"], [""], ["http://evil.example"], ["http://127.0.0.1"], ["http://127.0.0.1:7008"],
    ["http://localhost:7007"], ["http://127.0.0.1:7007.evil.example"], ["http://127.0.0.1:7007/"],
    ["ws://127.0.0.1:7007"], ["127.0.0.1:7007"], ["file://"], ["http://127.0.0.1:7007", "http://evil.example"],
    ["http://evil@127.0.0.1:7007"], ["http://127.0.0.1:7007 http://evil.example"],
]


def test_foreign_pages() -> None:
    for origins in FOREIGN:
        assert guard.refuse_origin("127.0.0.1:7007", origins), origins


def test_tokens_come_in_query_header_and_subprotocol() -> None:
    names = guard.subprotocols(["splatview, token.b", "token.c"])
    assert guard.tokens("q", ["a", ""], names) == ["q", "a", "b", "c"]
    assert guard.tokens(None, [], guard.subprotocols(["token.", "tokens", "splatview"])) == []


@pytest.mark.parametrize(("host", "only_here"), [
    ("127.0.0.9", True), ("::1", True), ("LOCALHOST", True), ("0.0.0.0", False), ("::", False), ("gpubox", False),
    ("", False),
])
def test_loopback(host: str, only_here: bool) -> None:
    assert guard.is_loopback(host) is only_here


# -- the address that is printed ---------------------------------------------------------------------------------------


@dataclass
class Server:
    """What a server says of itself."""

    host: str = "127.0.0.1"
    port: int = 7007
    token: str = "x"
    moved_from: int | None = None


SSH = "203.0.113.9 50000 198.51.100.4 22"


def lines(server: object, **environ: str) -> list[str]:
    return address.lines(server, environ)  # pyright: ignore[reportArgumentType]


def test_this_machine() -> None:
    for ssh in ("", "UNKNOWN", "1 2 3"):
        assert lines(Server(), SSH_CONNECTION=ssh) == ["splatview: open http://127.0.0.1:7007/?token=x in a browser"]


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
