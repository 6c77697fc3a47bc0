"""Files on the page, in a real Chromium: dropped, pasted, refused, given up; and those that are downloaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.pages import Hand, connected, state, until

from splatview_viewer.core.events import FileDrop
from splatview_viewer.web import files
from splatview_viewer.web import server as module

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from playwright.sync_api import Page
    from support.pages import Client, Open, Viewer

TOAST = "document.querySelector('#toast.shown')?.textContent || ''"
SENDING = "document.querySelector('#sending').hidden ? '' : document.querySelector('#sendwords').textContent"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server's temporary files lie."""
    folder = tmp_path / "server"
    folder.mkdir()
    monkeypatch.setattr(files.tempfile, "tempdir", str(folder))
    return folder


def came(client: Client, count: int = 1) -> list[Path]:
    """What has come, as soon as it is so many."""
    def found() -> list[Path]:
        got = [Path(said.paths[0]) for said in client.said(FileDrop)]
        return got if len(got) >= count else []

    return client.wait_for(found, f"{count} files")


def slow(page: Page, bytes_per_second: float) -> None:
    """The page's network."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", {
        "offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_per_second})


# ---- to the viewer


def test_files_are_dropped(start: Callable[..., Viewer], open_page: Open, tmp_path: Path,
                           picture_of: Callable[..., np.ndarray]) -> None:
    viewer = start(token="secret")
    page, client = connected(viewer, open_page)
    one, other = tmp_path / "a scene.ply", tmp_path / "Füchse & 狐.json"
    one.write_bytes(os.urandom(2_500_000))
    other.write_text('{"camera_path": []}')
    hand = Hand(page, one, other)
    hand.say("dragEnter")
    hand.say("dragOver")
    until(page, "!document.querySelector('#drop').hidden")
    picture_of(page, "drop")
    hand.say("dragCancel")
    until(page, "document.querySelector('#drop').hidden")
    hand.drop()
    first, second = came(client, 2)
    assert first.name == one.name and first.read_bytes() == one.read_bytes()
    assert second.name == other.name and second.read_bytes() == other.read_bytes()
    until(page, f"!({SENDING})")
    assert page.url == viewer.bare and state(page)["connected"] and page.evaluate(TOAST) == ""


def test_a_file_is_pasted_and_text_before_it(viewer: Viewer, open_page: Open) -> None:
    """Programs that copy cells of a table give a picture of them as well."""
    page, client = connected(viewer, open_page)
    paste = """(text) => { const data = new DataTransfer(); data.items.add(new File(['png'], 'image.png'));
      if (text) data.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent(
        'paste', {clipboardData: data, bubbles: true, cancelable: true})); }"""
    page.evaluate(paste, "")
    assert came(client)[0].read_bytes() == b"png"
    from splatview_viewer.core.events import Text

    page.evaluate(paste, "1\t2")
    assert client.wait(Text).text == "1\t2"
    assert len(came(client)) == 1


def test_a_file_too_large_is_not_even_sent(viewer: Viewer, open_page: Open, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE", 1_000_000)
    page, client = connected(viewer, open_page)
    (tmp_path / "large.ply").write_bytes(b"x" * 1_500_000)
    (tmp_path / "small.ply").write_bytes(b"x")
    Hand(page, tmp_path / "large.ply", tmp_path / "small.ply").drop()
    assert came(client)[0].name == "small.ply"
    until(page, f"({TOAST}).startsWith('large.ply has 1.5 MB; 1 MB is the most that a page can send')")


@pytest.mark.parametrize("size", [100])
def test_why_a_file_is_refused(viewer: Viewer, open_page: Open, tmp_path: Path, size: int,
                               monkeypatch: pytest.MonkeyPatch, picture_of: Callable[..., np.ndarray]) -> None:
    """Also where the viewer says so before all of it has come."""
    page, client = connected(viewer, open_page, expected="507")
    monkeypatch.setattr(files, "SPARE", 10**18)
    with (tmp_path / "scene.ply").open("wb") as file:
        file.truncate(size)
    Hand(page, tmp_path / "scene.ply").drop()
    until(page, f"({TOAST}).includes('There is no room for scene.ply on the disk of the viewer')")
    picture_of(page, f"refused-{size}")
    assert page.evaluate(SENDING) == "" and state(page)["connected"]
    monkeypatch.undo()
    Hand(page, tmp_path / "scene.ply").drop()
    assert came(client)[0].stat().st_size == size


def test_sending_is_given_up(viewer: Viewer, open_page: Open, tmp_path: Path, own_folder: Path,
                             picture_of: Callable[..., np.ndarray], wait_until: Callable[..., Any]) -> None:
    page, client = connected(viewer, open_page)
    slow(page, 200_000)
    for name in ("one.ply", "another.ply"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(40_000_000)
    Hand(page, tmp_path / "one.ply", tmp_path / "another.ply").drop()
    until(page, f"({SENDING}) === 'Sending one.ply, 40 MB, 1 more' && document.querySelector('#sendbar').value > 0")
    picture_of(page, "sending")
    page.click("#stopsending")
    until(page, f"!({SENDING}) && ({TOAST}) === 'Not sent'")
    wait_until(lambda: not list(own_folder.glob("*/*/*")))
    wait_until(lambda: not any("one.ply" in names for _, _, names in os.walk(own_folder)))
    slow(page, -1)
    (tmp_path / "small.ply").write_bytes(b"x")
    Hand(page, tmp_path / "small.ply").drop()
    assert came(client)[0].name == "small.ply"


# ---- from the viewer


def test_a_file_is_downloaded(start: Callable[..., Viewer], open_page: Open, tmp_path: Path) -> None:
    viewer = start(token="secret")
    page, client = connected(viewer, open_page)
    path = tmp_path / "fox & 狐-step7000.ply"
    path.write_bytes(os.urandom(3_000_000))
    with page.expect_download() as waiting:
        client.connection.offer(path.name, path, path.stat().st_size)
    assert waiting.value.suggested_filename == path.name
    assert "secret" not in waiting.value.url, "which browsers keep"
    waiting.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == path.read_bytes()
    assert f"Downloading {path.name}" in page.evaluate("document.querySelector('#toast').textContent")
    assert page.url == viewer.bare and state(page)["connected"]


def test_a_download_that_cannot_be_leaves_the_page(viewer: Viewer, open_page: Open, tmp_path: Path) -> None:
    page, client = connected(viewer, open_page, expected="404")
    client.connection.offer("not there.ply", tmp_path / "not there.ply", 10)
    until(page, f"({TOAST}).includes('not there.ply: cannot be read')")
    assert page.url == viewer.bare and state(page)["connected"]
