"""Which requests the web server answers, and the address that it prints."""

from __future__ import annotations

import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from support.web_clients import server_request

from splatview_ipc.control import registry
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.address import Guard, allowed_host, startup_lines

HOME = Guard("127.0.0.1", "secret")
OPEN = Guard("0.0.0.0", "secret")


def refusal(
    guard: Guard,
    *headers: tuple[str, str],
    path: str = "/ws?token=secret",
    public: bool = False,
) -> str:
    return guard.refuse(server_request(path, *headers), public=public)


def test_own_names_are_accepted_under_any_port() -> None:
    for host in ("127.0.0.1", "LocalHost:65535", "localhost.:80", "[::1]:7007"):
        assert refusal(HOME, ("Host", host)) == refusal(OPEN, ("Host", host)) == ""
    for host in (
        "192.168.7.5",
        "[2001:db8::1]:7007",
        f"{socket.gethostname().upper()}:7007",
        "0.0.0.0:7007",
    ):
        assert refusal(OPEN, ("Host", host)) == "" != refusal(HOME, ("Host", host))


def test_other_names_and_several_hosts_are_refused() -> None:
    """The reason says what to do, and repeats no control character."""
    names = (
        "evil.example:7007",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "",
        "127.0.0.1:7007:1",
        "[evil.a]",
        "127.0.0.1@evil.example",
        "127.0.0.1,evil.example",
        "http://127.0.0.1",
        "<b>\x1b[31m" + "x" * 500,
    )
    for hosts in (*([name] for name in names), [], ["127.0.0.1", "127.0.0.1"]):
        for guard in (HOME, OPEN):
            reason = refusal(guard, *(("Host", host) for host in hosts), public=True)
            assert "--allow-host" in reason, hosts
            assert len(reason) < 400, hosts
            assert "\x1b" not in reason, hosts


def test_foreign_pages_are_refused() -> None:
    for origins in (
        ["null"],
        [""],
        ["http://evil.example"],
        ["http://127.0.0.1:7008"],
        ["http://localhost:7007"],
        ["http://127.0.0.1:7007.evil.example"],
        ["http://127.0.0.1:7007", "http://evil.example"],
    ):
        headers = ("Host", "127.0.0.1:7007"), *(("Origin", o) for o in origins)
        assert refusal(HOME, *headers), origins
        assert refusal(HOME, *headers, public=True) == "", "its files are no secret"
    for host in ("127.0.0.1:7007", "localhost:8000", "[::1]:7007"):
        for scheme in ("http", "https", "HTTP"):
            origin = f"{scheme}://{host.upper()}"
            assert refusal(HOME, ("Host", host), ("Origin", origin)) == ""


PROXIED = Guard("127.0.0.1", "secret", ["viewer.example", "2001:db8::1"])


@pytest.mark.parametrize("host", ["viewer.example", "127.0.0.1", "[2001:db8::1]:7007"])
def test_allowed_names_are_legal_in_host_and_origin(host: str) -> None:
    """Any port is legal, also where a proxy puts the viewer's own name into Host."""
    for origin in (
        "https://viewer.example",
        "http://Viewer.Example:8443",
        "https://[2001:db8::1]:9",
        f"https://{host}",
    ):
        headers = ("Host", host), ("Origin", origin)
        assert refusal(PROXIED, *headers) == ""
        assert "needs a token" in refusal(PROXIED, *headers, path="/ws")


@pytest.mark.parametrize(
    "origin",
    [
        "https://other.example",
        "https://viewer.example.evil.example",
        "https://evil.example/viewer.example",
        "https://viewer.example@evil.example",
        "https://sub.viewer.example",
        "ftp://viewer.example",
        "viewer.example",
        "null",
        "",
    ],
)
def test_nothing_but_allowed_names_becomes_legal(origin: str) -> None:
    for host in ("viewer.example", "127.0.0.1:7007"):
        reason = refusal(PROXIED, ("Host", host), ("Origin", origin))
        assert "Only the viewer's own page" in reason
    assert refusal(PROXIED, ("Host", "sub.viewer.example"), public=True)
    assert refusal(PROXIED, ("Host", "viewer.example"), ("Host", "127.0.0.1"))


def test_refused_origin_names_the_option() -> None:
    for origin, name in (
        ("https://a.example:8443", "a.example"),
        ("http://[::9]:1", "::9"),
    ):
        reason = refusal(HOME, ("Host", "127.0.0.1"), ("Origin", origin))
        assert f"--allow-host {name}." in reason
        allowing = Guard("127.0.0.1", "secret", [allowed_host(name)])
        assert not refusal(allowing, ("Host", "127.0.0.1"), ("Origin", origin))


def test_allowed_names_are_validated() -> None:
    for text, name in (
        ("Viewer.Example.", "viewer.example"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
        ("my_viewer", "my_viewer"),
        ("b\xfccher.example", "xn--bcher-kva.example"),
        ("10.1.2.3", "10.1.2.3"),
    ):
        assert allowed_host(text) == name
    for invalid in (
        "",
        "*",
        "*.example",
        "https://a.example",
        "a.example:443",
        "a.example/view",
        "a b",
        "a,b",
        "x" * 300,
        "a..b",
        "\x1b[31m",
    ):
        with pytest.raises(ViewerError, match="invalid --allow-host"):
            allowed_host(invalid)


def test_tokens_are_read_from_address_header_and_subprotocol() -> None:
    def needs(*headers: tuple[str, str], path: str = "/ws") -> str:
        return refusal(HOME, ("Host", "localhost"), *headers, path=path)

    assert not needs(path="/?token=secret")
    assert not needs(("X-Splatview-Token", "secret"))
    assert not needs(("Sec-WebSocket-Protocol", "splatview, token.secret"))
    for reason in (
        needs(),
        needs(path="/?token="),
        needs(("X-Splatview-Token", "\xe4")),
        needs(path="/?token=secret2"),
        needs(("Sec-WebSocket-Protocol", "splatview, token.other")),
    ):
        assert "?token=" in reason
        assert "secret" not in reason
    assert refusal(HOME, ("Host", "localhost"), path="/viewer.js", public=True) == ""


def server(host: str = "127.0.0.1", allowed: tuple[str, ...] = ()) -> Any:
    """Return what stands for a server, with what its address lines need."""
    return SimpleNamespace(
        host=host, port=7007, token="a_-1", moved_from=None, allowed=allowed
    )


def test_addresses_are_listed_for_this_machine_and_for_others() -> None:
    assert startup_lines(server(), {"SSH_CONNECTION": "UNKNOWN"}) == [
        "splatview: open http://127.0.0.1:7007/?token=a_-1 in a browser"
    ]
    for host, url in (
        ("localhost", "localhost"),
        ("::1", "[::1]"),
        ("::", "127.0.0.1"),
        ("10.1.2.3", "10.1.2.3"),
    ):
        line = startup_lines(server(host), {})[0]
        assert line == f"splatview: open http://{url}:7007/?token=a_-1 in a browser"
    (_, proxied) = startup_lines(server(allowed=("viewer.example",)), {})
    assert "viewer.example" in proxied
    assert "#token=a_-1" in proxied
    _, *other_lines = startup_lines(server("0.0.0.0"), {})
    form = r"splatview: or, from another machine, http://(\S+):7007/\?token=a_-1"
    hosts = []
    for line in other_lines:
        match = re.fullmatch(form, line)
        assert match is not None
        hosts.append(match[1])
    assert hosts[0] == socket.gethostname()
    for host in hosts:
        assert host != "127.0.0.1"
        assert ":" not in host


@pytest.mark.parametrize(
    ("host", "ssh", "command"),
    [
        (
            "127.0.0.1",
            "198.51.100.4 2222",
            "ssh -L 7007:127.0.0.1:7007 -p 2222 ada@198.51.100.4",
        ),
        (
            "192.168.1.5",
            "198.51.100.4 22",
            "ssh -L 7007:192.168.1.5:7007 ada@198.51.100.4",
        ),
        ("::1", "2001:db8::4 22", "ssh -L '7007:[::1]:7007' ada@2001:db8::4"),
    ],
)
def test_tunnel_command_is_printed_over_ssh(
    host: str, ssh: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "is_own_address", bool)
    environment = {"SSH_CONNECTION": f"203.0.113.9 50000 {ssh}", "USER": "ada"}
    printed = startup_lines(server(host), environment)
    assert printed[-2:] == [
        f"    {command}",
        "  and open http://127.0.0.1:7007/?token=a_-1 there",
    ]


@pytest.mark.parametrize(
    ("ssh", "jump"),
    [
        ("198.51.100.4 2222", "ada@198.51.100.4:2222"),
        ("2001:db8::4 22", "'ada@[2001:db8::4]:22'"),
    ],
)
def test_tunnel_goes_through_the_login_node_of_a_cluster(
    ssh: str, jump: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedulers hand on the login node's environment; no interface has its address."""
    assert registry.is_own_address("127.0.0.1")
    assert not registry.is_own_address("198.51.100.4")
    # A machine may have no IPv6.
    monkeypatch.setattr(registry, "is_own_address", {}.get)
    environment = {"SSH_CONNECTION": f"203.0.113.9 50000 {ssh}", "USER": "ada"}
    printed = startup_lines(server(), environment)
    assert printed[-2] == (
        f"    ssh -L 7007:127.0.0.1:7007 -J {jump} ada@{socket.gethostname()}"
    )
