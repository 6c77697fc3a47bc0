"""Streams that come, go, restart and pause, and the program `splatview serve`."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import msgspec
import pytest
import torch
from PIL import Image
from support.frames import cloud
from support.programs import Programs
from support.viewer import Viewer
from support.wait import PATIENCE_S, wait_until

import splatview
from splatview_ipc.control import limits
from splatview_ipc.control.registry import list_viewers
from splatview_ipc.control.run_folder import create_run
from splatview_viewer.app.loop import step
from splatview_viewer.core.events import Wheel
from splatview_viewer.core.settings import Entry
from splatview_viewer.workspace.file_source import FileSource


def publish_grey(value: int, name: str = "render", step: int = 0) -> None:
    splatview.publish(
        torch.full((40, 60, 3), value, dtype=torch.uint8), name, meta={"step": step}
    )


def entry(viewer: Viewer, name: str) -> Entry:
    return next(e for e in viewer.state.entries if e.name == name)


def shows_grey(viewer: Viewer, grey: int) -> bool:
    """Draw once more, and return whether the middle of the picture is this grey."""
    step(viewer)
    picture = viewer.picture()
    middle = picture[picture.shape[0] // 2, picture.shape[1] // 2]
    return bool((middle == grey).all())


def until_grey(viewer: Viewer, grey: int) -> None:
    """Take turns until the middle of the picture is this grey."""
    viewer.until(partial(shows_grey, viewer, grey))


def test_stream_appears_and_is_continued_by_a_restart(
    viewer: Viewer,
) -> None:
    publish_grey(77)
    until_grey(viewer, 77)
    assert entry(viewer, "render").kind == "image"
    assert entry(viewer, "render").alive
    view = viewer.image
    assert view.size == (60, 40)
    picture = viewer.user.layout.active.rect
    assert view.zoom == pytest.approx(min(picture.width / 60, picture.height / 40))
    publish_grey(90, step=1)
    until_grey(viewer, 90)
    assert "step 1" in view.info().details

    def has_latency() -> bool:
        return viewer.state.timings.latency_ms is not None

    viewer.until(has_latency)
    viewer.do(Wheel(590, 247, 3))
    position = view.pan_zoom.placed(viewer.user.layout.active.rect)
    splatview.close()

    def has_ended() -> bool:
        return not entry(viewer, "render").alive

    viewer.until(has_ended)
    # The last picture stays.
    assert shows_grey(viewer, 90)
    publish_grey(160)
    until_grey(viewer, 160)
    # The restarted stream has the same line of the list.
    assert [entry.name for entry in viewer.state.entries] == ["render"]
    assert viewer.image is view
    assert view.pan_zoom.placed(viewer.user.layout.active.rect) == position
    assert entry(viewer, "render").alive


def test_only_shown_streams_are_opened(viewer: Viewer) -> None:
    publish_grey(77)
    until_grey(viewer, 77)
    splatview.publish(cloud(), "splats", meta={"step": 7})

    def shows_splats() -> bool:
        selected = viewer.state.selected_entry
        return viewer.loaded() and selected is not None and selected.name == "splats"

    viewer.until(shows_splats)
    assert viewer.picture().max() > 60, "Gaussians come before images"
    streams = {stream.name: stream for stream in viewer.catalogue.subscriber.streams}
    splats = streams["splats"]
    render = streams["render"]

    def only_splats_is_open() -> bool:
        return splats.opened and not render.opened

    def only_render_is_open() -> bool:
        return viewer.loaded() and render.opened and not splats.opened

    viewer.until(only_splats_is_open)
    viewer.user.select(entry(viewer, "render").key)
    viewer.until(only_render_is_open)
    splatview.publish(cloud(), "splats", meta={"step": 8})

    def shows_selected_entry() -> bool:
        return entry(viewer, "splats").version == 2 and shows_grey(viewer, 77)

    viewer.until(shows_selected_entry)


def test_a_run_of_another_protocol_is_reported(viewer: Viewer) -> None:
    run = create_run("train", 1234, 1.0)
    description = msgspec.structs.replace(run.description, protocol=limits.PROTOCOL + 1)
    (run.path / "run.json").write_bytes(msgspec.json.encode(description))
    viewer.until(lambda: viewer.state.notices)
    (notice,) = viewer.state.notices
    assert notice.startswith("train: ")
    assert f"protocol {limits.PROTOCOL + 1}" in notice
    run.remove()


def test_run_is_paused_stepped_and_resumed(viewer: Viewer) -> None:
    publish_grey(1)
    until_grey(viewer, 1)
    state = entry(viewer, "render")
    viewer.click("Pause")
    viewer.until(lambda: bool(state.paused))

    def train() -> None:
        for value in range(2, 5):
            publish_grey(value)
            splatview.wait_while_paused()

    def waits_at(value: int) -> bool:
        return shows_grey(viewer, value) and state.waits == 2

    def has_resumed() -> bool:
        return shows_grey(viewer, 4) and not state.paused

    trainer = threading.Thread(target=train)
    trainer.start()
    for value, button in ((2, "Step"), (3, "Resume")):
        viewer.until(partial(waits_at, value))
        viewer.click(button)
    trainer.join(PATIENCE_S)
    viewer.until(has_resumed)


# -- the program ---------------------------------------------------------------


def test_serve_without_a_display_serves_a_page(programs: Programs) -> None:
    program = programs.splatview("serve", "--port", 0, DISPLAY="", WAYLAND_DISPLAY="")
    wait_until(list_viewers)
    with urlopen(list_viewers()[0].url, timeout=PATIENCE_S) as page:
        assert b"<title>splatview</title>" in page.read()
    program.terminate()
    _, err = program.end()
    assert list_viewers() == []
    assert program.returncode == 0
    assert "no display here" in err


@pytest.mark.parametrize("sandboxed", [False, True], ids=["user's", "page's"])
def test_many_files_are_read_by_a_few_threads(tmp_path: Path, sandboxed: bool) -> None:
    path = tmp_path / "picture.png"
    Image.new("RGB", (8, 8)).save(path)
    sources = [FileSource(path, sandboxed=sandboxed) for _ in range(24)]
    readers = [t for t in threading.enumerate() if t.name.startswith("read")]
    assert 0 < len(readers) <= 8
    for source in sources:
        source.close()

    def have_ended() -> bool:
        return not any(thread.is_alive() for thread in readers)

    wait_until(have_ended)
