"""Another user of the machine at the viewer's page: sees nothing and steers nothing without the token."""

from __future__ import annotations

import fcntl
import os
import re
from typing import TYPE_CHECKING

from support.other_users import OTHER, ask_as, needs_root
from support.web_clients import Visitor

from benchmarks.browser.hostile import head, upgrade
from splatview_viewer.core.events import FileDrop
from splatview_viewer.web import messages as m
from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs


pytestmark = needs_root


def test_other_user_without_the_token_gets_nothing(folder: Path, programs: Programs, tmp_path: Path) -> None:
    """Nor with the upload key and the download link of a page, known somehow."""
    viewer = WebServer(port=0, wake=lambda: None)  # as `splatview serve --web` has it
    (tmp_path / "scene.ply").write_bytes(b"a secret")
    own = Visitor(viewer)
    try:
        own.client.connection.offer("scene.ply", tmp_path / "scene.ply", 8)
        offer = own.receive()
        assert isinstance(offer, m.Offer)
        port, token = viewer.port, viewer.token
        page, download = {"X-Splatview-Page": own.key, "Content-Length": "0"}, f"/download?key={offer.key}"
        refused = [upgrade(port), upgrade(port, "/ws?token=wrong"),
                   upgrade(port, **{"Sec-WebSocket-Protocol": "splatview, token.wrong"}),
                   head(port, "/upload?name=a", "POST", **page), head(port, download),
                   head(port, download, **{"X-Splatview-Token": "wrong"})]
        taken = [head(port), upgrade(port, f"/ws?token={token}"),
                 upgrade(port, **{"Sec-WebSocket-Protocol": f"splatview, token.{token}"})]
        answers = ask_as(programs, port, refused + taken)
        statuses = [int(re.findall(r"HTTP/1.1 (\d+) ", answer)[0]) for answer in answers]
        assert statuses == [403] * len(refused) + [200, 101, 101]
        assert not any(secret in answer for answer in answers for secret in (token, "a secret", own.key))
        assert "?token=" in answers[0], "what to do"
        assert viewer.arrivals() == [] and not own.client.said(FileDrop)
        assert own.post().status == 200 and own.fetch(offer.key).text == "a secret"
    finally:
        own.end()
        viewer.close()


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
