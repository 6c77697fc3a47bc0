"""Another user of the machine at the viewer's page: sees nothing and steers nothing without the token."""

from __future__ import annotations

import fcntl
import os
import re
from typing import TYPE_CHECKING

import pytest
from support.other_users import OTHER, ask_as, needs_root, request, upgrade
from support.web_visitors import Visitor, fetch

from splatview_viewer.web import messages as m
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs


pytestmark = needs_root


@pytest.fixture
def viewer(folder: Path) -> Iterator[WebServer]:
    """As `splatview serve --web` has it: on loopback, without a token of the user's choice."""
    made = WebServer(port=0, wake=lambda: None)
    yield made
    made.close()


def statuses(answers: list[str]) -> list[int]:
    return [int(re.match(r"HTTP/1.1 (\d+) ", answer)[1]) for answer in answers]  # type: ignore[index]


def test_other_user_without_the_token_gets_nothing(viewer: WebServer, programs: Programs) -> None:
    port, token = viewer.port, viewer.token
    refused = [request(port, "/"), request(port, "/", Accept="text/html"), upgrade(port),
               request(port, "/upload?name=a", "POST", "x"), request(port, "/download?key=x"),
               request(port, "/?token=wrong"), upgrade(port, "?token=wrong"),
               upgrade(port, **{"Sec-WebSocket-Protocol": "splatview, token.wrong"}),
               request(port, "/", **{"X-Splatview-Token": "wrong"})]
    taken = [request(port, f"/?token={token}"), request(port, "/", **{"X-Splatview-Token": token}),
             upgrade(port, f"?token={token}"), upgrade(port, **{"Sec-WebSocket-Protocol": f"splatview, token.{token}"})]
    answers = ask_as(programs, port, [("127.0.0.1", one) for one in refused + taken])
    assert statuses(answers) == [403] * len(refused) + [200, 200, 101, 101]
    assert not any(token in answer for answer in answers), "no answer repeats it"
    assert "?token=" in answers[0], "what to do"
    assert "<html" in answers[1] and "canvas" not in answers[1]
    assert viewer.arrivals() == []


def test_keys_of_own_pages_are_no_use_to_other_user(viewer: WebServer, programs: Programs, tmp_path: Path) -> None:
    """The upload key and the download link of a page, known somehow."""
    (tmp_path / "scene.ply").write_bytes(b"a secret")
    own = Visitor(viewer)
    try:
        own.connection.offer("scene.ply", tmp_path / "scene.ply", 8)
        offer = own.page.receive()
        assert isinstance(offer, m.Offer)
        upload = request(viewer.port, "/upload?name=a", "POST", "x", **{"X-Splatview-Page": own.key})
        download = request(viewer.port, f"/download?key={offer.key}")
        answers = ask_as(programs, viewer.port, [("127.0.0.1", one) for one in (upload, download)])
        assert statuses(answers) == [403, 403]
        assert own.uploads == [] and "a secret" not in answers[1]
        assert own.post(token=viewer.token)[0] == 200
        assert fetch(own, offer.key, viewer.token)[1] == "a secret"
    finally:
        own.page.end()


def test_status_of_root_prints_no_token_of_another_user(programs: Programs, runtime_dir: Path) -> None:
    theirs = runtime_dir / "theirs"
    theirs.mkdir(mode=0o700, parents=True)
    told = theirs / "viewer-1-00000000.json"
    told.write_text('{"pid": 1, "url": "http://127.0.0.1:7007/?token=secret", "host": "127.0.0.1", "port": 7007}')
    os.chown(theirs, OTHER, OTHER)
    os.chown(told, OTHER, OTHER)
    with told.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the viewer holds it
        program = programs.splatview("status", "--json", SPLATVIEW_RUNTIME_DIR=str(theirs))
        said, errors = program.end()
        assert program.returncode == 2 and "belongs to you" in errors
        assert "secret" not in said + errors
