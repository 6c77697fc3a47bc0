"""Who may talk to the web server."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys

import pytest

from splatview.viewer_app.web import guard

HOME = guard.rules_for("127.0.0.1", "secret", 1000)
OPEN = guard.rules_for("0.0.0.0", "secret")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7007", "localhost:1", "LocalHost:65535", "localhost.:80",
                                  "[::1]", "[::1]:7007"])
def test_own_names_under_any_port(host: str) -> None:
    assert guard.refuse_host(HOME, [host]) == ""
    assert guard.refuse_host(OPEN, [host]) == ""


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:7007", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost", "", " ",
    "127.0.0.1:70000", "127.0.0.1:", "127.0.0.1:7007:1", "[::1", "[localhost]", "::1", "127.0.0.1@evil.example",
    "127.0.0.1,evil.example", "127.0.0.1\n", "127.0.0.1/", "http://127.0.0.1", "\uff11\uff12\uff17.0.0.1",
    "[evil.example]",
])
def test_other_names(host: str) -> None:
    assert "name" in guard.refuse_host(HOME, [host])
    assert "name" in guard.refuse_host(OPEN, [host])


@pytest.mark.parametrize("host", ["192.168.7.5", "10.0.0.1:7007", "[2001:db8::1]:7007", socket.gethostname(),
                                  socket.gethostname().upper() + ":7007", "0.0.0.0:7007"])
def test_addresses_and_the_machines_name_where_others_may_come(host: str) -> None:
    assert guard.refuse_host(OPEN, [host]) == ""
    if host.partition(":")[0].lower() not in guard.LOOPBACK:
        assert guard.refuse_host(HOME, [host])


def test_the_name_given() -> None:
    assert guard.refuse_host(guard.rules_for("127.0.0.5", "x"), ["127.0.0.5:80"]) == ""
    assert guard.refuse_host(HOME, ["127.0.0.5:80"])
    assert guard.refuse_host(guard.rules_for("gpu.example", "x"), ["GPU.example:80"]) == ""


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


@pytest.mark.parametrize("origins", [
    [], ["null"], [""], ["http://evil.example"], ["http://127.0.0.1"], ["http://127.0.0.1:7008"],
    ["http://localhost:7007"], ["http://127.0.0.1:7007.evil.example"], ["http://127.0.0.1:7007/"],
    ["ws://127.0.0.1:7007"], ["127.0.0.1:7007"], ["file://"], ["http://127.0.0.1:7007", "http://evil.example"],
    ["http://evil@127.0.0.1:7007"], ["http://127.0.0.1:7007 http://evil.example"],
])
def test_foreign_pages(origins: list[str]) -> None:
    assert guard.refuse_origin("127.0.0.1:7007", origins)


def test_the_token() -> None:
    for rules in (HOME, OPEN):
        assert guard.refuse_token(rules, ["secret"]) == guard.refuse_token(rules, ["old", "secret"]) == ""
        for wrong in ("Secret", "secret ", "secre", "sécret", "\ud800"):
            assert "not this viewer's" in guard.refuse_token(rules, [wrong])
        assert "needs a token" in guard.refuse_token(rules, [])


def test_own_user_needs_no_token_on_loopback() -> None:
    assert guard.refuse_token(HOME, [], 1000) == guard.refuse_token(HOME, ["old"], 1000) == ""
    for other in (0, 1001, 65534, None):
        assert "needs a token" in guard.refuse_token(HOME, [], other)
    for owner in (0, 1000, None):
        assert "needs a token" in guard.refuse_token(OPEN, [], owner)


def test_refusal_names_the_user_only_on_loopback() -> None:
    own = guard.rules_for("127.0.0.1", "secret", os.getuid())
    assert pwd.getpwuid(os.getuid()).pw_name in guard.refuse_token(own, [])
    assert "user" not in guard.refuse_token(OPEN, [])
    assert guard.user_name(987654) == "uid 987654"
    for rules in (own, OPEN):
        assert "secret" not in guard.refuse_token(rules, []) + guard.refuse_token(rules, ["x"])


def test_tokens_come_in_query_header_and_subprotocol() -> None:
    names = guard.subprotocols(["splatview, token.b", "token.c"])
    assert guard.tokens("q", ["a", ""], names) == ["q", "a", "b", "c"]
    assert guard.tokens(None, [], guard.subprotocols(["token.", "tokens", "splatview"])) == []


@pytest.mark.parametrize(("host", "only_here"), [
    ("127.0.0.1", True), ("127.0.0.9", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
    ("0.0.0.0", False), ("::", False), ("192.168.1.1", False), ("gpubox", False), ("", False),
])
def test_loopback(host: str, only_here: bool) -> None:
    assert guard.is_loopback(host) is only_here


def test_who_serves_nothing_loads_no_server() -> None:
    program = ("import sys; import splatview.viewer_app.web, splatview.viewer_app.web.messages, "
               "splatview.viewer_app.web.guard, "
               "splatview.viewer_app.web.address; print('aiohttp' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
