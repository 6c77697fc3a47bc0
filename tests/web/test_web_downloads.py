"""Files that the viewer offers to a page, over real sockets: fetched once, by who was offered them."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from support.open_files import open_files
from support.wait import PATIENCE
from support.web_visitors import Visitor, ask, folder_fixture, server_fixture, visitor_fixture  # noqa: F401

from splatview.viewer_app.web import connection as bounds
from splatview.viewer_app.web import messages as m
from splatview.viewer_app.web.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fetch(visitor: Visitor, key: str, token: str = "secret", **headers: str) -> Any:
    return ask(visitor.port, "GET", f"/download?token={token}&key={key}", headers=headers)


def test_a_file_is_offered_once(visitor: Visitor, tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    path = tmp_path / "Füchse <1>.ply"
    path.write_bytes(content)
    visitor.connection.offer(path, len(content))
    offer = visitor.page.receive()
    assert isinstance(offer, m.Offer) and (offer.name, offer.size) == (path.name, len(content))
    assert fetch(visitor, offer.key, "wrong")[0] == 403
    assert fetch(visitor, offer.key, Host="evil.example")[0] == 403
    assert ask(visitor.port, "POST", f"/download?token=secret&key={offer.key}", b"")[0] == 405
    status, _, answer, got = fetch(visitor, offer.key)
    assert status == 200 and got == content
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers.get_content_type() == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
    assert fetch(visitor, offer.key)[0] == 404
    assert path.exists()


@pytest.mark.parametrize("key", ["", "x", "../../etc/passwd", "a" * 5000])
def test_what_is_not_offered(visitor: Visitor, tmp_path: Path, key: str) -> None:
    (tmp_path / "a").write_bytes(b"a")
    visitor.connection.offer(tmp_path / "a", 1)
    status, words, *_ = fetch(visitor, quote(key))
    assert status == 404 and "not offered" in words


def test_offers_have_an_end(visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for number in range(bounds.MAX_OFFERS + 1):
        (tmp_path / f"{number}.json").write_text("{}")
        visitor.connection.offer(tmp_path / f"{number}.json", 2)
        offer = visitor.page.receive()
        assert isinstance(offer, m.Offer)
        keys.append(offer.key)
    assert fetch(visitor, keys[0])[0] == 404, "one too many waited"
    assert fetch(visitor, keys[1])[0] == 200
    (tmp_path / "2.json").unlink()
    assert fetch(visitor, keys[2])[0] == 404
    monkeypatch.setattr(bounds, "OFFERED_FOR", -1.0)
    assert fetch(visitor, keys[3])[0] == 404
    monkeypatch.undo()
    visitor.page.drop()
    assert visitor.receiver.over.wait(PATIENCE)
    assert fetch(visitor, keys[4])[0] == 404, "of a page that is gone"
    visitor.connection.offer(tmp_path / "4.json", 2)


def test_who_does_not_read_on(visitor: Visitor, tmp_path: Path, wait_until: Callable[..., Any],
                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds a file open for a while, and not for good."""
    from splatview.viewer_app.web import files

    monkeypatch.setattr(files, "STALL", 0.3)
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    visitor.connection.offer(path, 200_000_000)
    offer = visitor.page.receive()
    assert isinstance(offer, m.Offer)
    before = open_files()
    with socket.create_connection(("127.0.0.1", visitor.port), timeout=PATIENCE) as client:
        client.sendall(f"GET /download?token=secret&key={offer.key} HTTP/1.1\r\n"
                       f"Host: 127.0.0.1:{visitor.port}\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        wait_until(lambda: path.stat().st_ino not in {number for *_, number in open_files()})
    wait_until(lambda: open_files() <= before)
    assert isinstance(visitor.connection, Connection) and not visitor.connection.closed
