"""Files on the page, in a real Chromium: dropped, pasted, refused, given up; and those that are downloaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from support.pages import connected, drag, seen, state, until
from support.wait import wait_until
from support.web_clients import kept

from splatview_viewer.core import events as ev
from splatview_viewer.web import files
from splatview_viewer.web import server as module

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from playwright.sync_api import Page
    from support.pages import Open, Viewer

TOAST = "document.querySelector('#toast.shown')?.textContent || ''"
SENDING = "document.querySelector('#sending').hidden ? '' : document.querySelector('#sendwords').textContent"


def slow(page: Page, bytes_per_second: float) -> None:
    """The page's network."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", {
        "offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_per_second})


def test_files_are_dropped_and_pasted(viewer: Viewer, open_page: Open, tmp_path: Path) -> None:
    page, client = connected(viewer, open_page)
    one, other = tmp_path / "a scene.ply", tmp_path / "Füchse & 狐.json"
    one.write_bytes(os.urandom(2_500_000))
    other.write_text('{"camera_path": []}')
    drag(page, one, other, kinds=("dragEnter", "dragOver"))
    until(page, "!document.querySelector('#drop').hidden")
    seen(page, "drop")
    drag(page, one, other, kinds=("dragCancel",))
    until(page, "document.querySelector('#drop').hidden")
    drag(page, one, other)
    first, second = client.files(2)
    assert first.name == one.name and first.read_bytes() == one.read_bytes()
    assert second.name == "Füchse - 狐.json" and second.read_bytes() == other.read_bytes()
    until(page, f"!({SENDING})")
    assert page.evaluate(TOAST) == ""
    paste = """(text) => { const data = new DataTransfer(); data.items.add(new File(['png'], 'image.png'));
      if (text) data.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent(
        'paste', {clipboardData: data, bubbles: true, cancelable: true})); }"""
    page.evaluate(paste, "")
    assert client.files(3)[2].read_bytes() == b"png"
    page.evaluate(paste, "1\t2")  # programs that copy cells of a table give a picture of them as well
    assert client.wait(ev.Text).text == "1\t2" and len(client.files()) == 3
    assert page.url == viewer.bare and state(page)["connected"]


def test_why_a_file_is_not_sent(viewer: Viewer, open_page: Open, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is too large is not even begun."""
    monkeypatch.setattr(module, "MAX_FILE", 1_000_000)
    page, client = connected(viewer, open_page, expected="507")
    (tmp_path / "large.ply").write_bytes(b"x" * 1_500_000)
    (tmp_path / "small.ply").write_bytes(b"x")
    drag(page, tmp_path / "large.ply", tmp_path / "small.ply")
    assert client.files()[0].name == "small.ply"
    until(page, f"({TOAST}).startsWith('large.ply has 1.5 MB; 1 MB is the most that a page can send')")
    monkeypatch.setattr(files, "SPARE", 10**18)
    drag(page, tmp_path / "small.ply")
    until(page, f"({TOAST}).includes('There is no room for small.ply on the viewer')")
    assert page.evaluate(SENDING) == "" and state(page)["connected"]


def test_sending_is_given_up(viewer: Viewer, open_page: Open, tmp_path: Path, folder: Path) -> None:
    page, client = connected(viewer, open_page)
    slow(page, 200_000)
    for name in ("one.ply", "another.ply"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(40_000_000)
    drag(page, tmp_path / "one.ply", tmp_path / "another.ply")
    until(page, f"({SENDING}) === 'Sending one.ply, 40 MB, 1 more' && document.querySelector('#sendbar').value > 0")
    seen(page, "sending")
    page.click("#stopsending")
    until(page, f"!({SENDING}) && ({TOAST}) === 'Not sent'")
    wait_until(lambda: not kept(folder))
    slow(page, -1)
    (tmp_path / "small.ply").write_bytes(b"x")
    drag(page, tmp_path / "small.ply")
    assert client.files()[0].name == "small.ply"


def test_files_are_downloaded(viewer: Viewer, open_page: Open, tmp_path: Path) -> None:
    """What the viewer answers to the screenshot button, a file that it wrote, and one that is not there any more."""
    page, client = connected(viewer, open_page, expected="404")
    page.mouse.move(400, 300)
    page.click("#shot")
    assert client.wait(ev.Screenshot).at > 0
    path = tmp_path / "fox & 狐-step7000.ply"
    path.write_bytes(os.urandom(3_000_000))
    for name, content in (("render 12.png", os.urandom(1000)), (path.name, path)):
        with page.expect_download() as waiting:
            client.connection.offer(name, content, 3_000_000)
        assert waiting.value.suggested_filename == name
        assert viewer.token not in waiting.value.url, "which browsers keep"
        assert waiting.value.path().read_bytes() == (content if isinstance(content, bytes) else content.read_bytes())
    client.connection.offer("not there.ply", tmp_path / "not there.ply", 10)
    until(page, f"({TOAST}).includes('not there.ply: cannot be read')")
    assert page.evaluate("document.activeElement.id") == "canvas"
    assert page.url == viewer.bare and state(page)["connected"]
