"""The viewer and runs: streams that come, go, restart and pause; and the program
`splatview serve`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from urllib.request import urlopen

import pytest
import torch
from PIL import Image
from support.frames import cloud
from support.programs import Programs
from support.viewer import Viewer
from support.wait import PATIENCE, wait_until

import splatview
from splatview_ipc.control.registry import list_viewers
from splatview_viewer.app.loop import step
from splatview_viewer.core.events import Wheel
from splatview_viewer.core.settings import Entry
from splatview_viewer.workspace.sources import FileSource


def publish_grey(value: int, name: str = "render", step: int = 0) -> None:
    splatview.publish(
        torch.full((40, 60, 3), value, dtype=torch.uint8), name, meta={"step": step}
    )


def entry(viewer: Viewer, name: str) -> Entry:
    return next(e for e in viewer.state.entries if e.name == name)


def sees(viewer: Viewer, grey: int) -> bool:
    """Whether the middle of the picture is this grey; draws once more."""
    step(viewer)
    picture = viewer.picture()
    return bool((picture[picture.shape[0] // 2, picture.shape[1] // 2] == grey).all())


def test_a_stream_appears_by_itself_stays_and_is_continued_by_a_restart(
    viewer: Viewer,
) -> None:
    publish_grey(77)
    viewer.until(lambda: sees(viewer, 77))
    assert entry(viewer, "render").kind == "image"
    assert entry(viewer, "render").alive
    view = viewer.image
    assert view.size == (60, 40)
    assert view.zoom == pytest.approx(620 / 60)
    publish_grey(90, step=1)
    viewer.until(lambda: sees(viewer, 90))
    assert "step 1" in view.info().details
    viewer.until(lambda: viewer.state.timings.latency_ms is not None)
    viewer.do(Wheel(590, 247, 3))
    placed = view.pan_zoom.placed(viewer.user.layout.active.rect)
    splatview.close()
    viewer.until(lambda: not entry(viewer, "render").alive)
    assert sees(viewer, 90)  # the last picture stays
    publish_grey(160)
    viewer.until(lambda: sees(viewer, 160))
    assert [e.name for e in viewer.state.entries] == [
        "render"
    ]  # the same line of the list
    assert viewer.image is view
    assert view.pan_zoom.placed(viewer.user.layout.active.rect) == placed
    assert entry(viewer, "render").alive


def test_only_what_is_shown_is_shared(viewer: Viewer) -> None:
    publish_grey(77)
    viewer.until(lambda: sees(viewer, 77))
    splatview.publish(cloud(), "splats", meta={"step": 7})
    viewer.until(
        lambda: (
            viewer.loaded() and viewer.state.selected_entry.name == "splats"  # type: ignore[union-attr]
        )
    )
    assert viewer.picture().max() > 60, "Gaussians come before images"
    streams = {s.name: s for s in viewer.catalogue.subscriber.streams}
    viewer.until(lambda: streams["splats"].opened and not streams["render"].opened)
    viewer.user.select(entry(viewer, "render").key)
    viewer.until(
        lambda: (
            viewer.loaded()
            and streams["render"].opened
            and not streams["splats"].opened
        )
    )
    splatview.publish(cloud(), "splats", meta={"step": 8})
    viewer.until(
        lambda: entry(viewer, "splats").version == 2 and sees(viewer, 77)
    )  # the entry was chosen


def test_pausing_a_run(viewer: Viewer) -> None:
    publish_grey(1)
    viewer.until(lambda: sees(viewer, 1))
    state = entry(viewer, "render")
    viewer.click("Pause the run")
    viewer.until(lambda: bool(state.paused))

    def train() -> None:
        for value in range(2, 5):
            publish_grey(value)
            splatview.wait_while_paused()

    trainer = threading.Thread(target=train)
    trainer.start()
    for value, button in ((2, "Step"), (3, "Resume")):
        viewer.until(lambda value=value: sees(viewer, value) and state.waits == 2)
        viewer.click(button)
    trainer.join(PATIENCE)
    viewer.until(lambda: sees(viewer, 4) and not state.paused)


# -- the program ---------------------------------------------------------------


def test_serve_without_a_display_is_a_page_for_a_browser(programs: Programs) -> None:
    program = programs.splatview("serve", "--port", 0, DISPLAY="", WAYLAND_DISPLAY="")
    wait_until(list_viewers)
    with urlopen(list_viewers()[0].url, timeout=PATIENCE) as page:
        assert b"<title>splatview</title>" in page.read()
    program.terminate()
    _, err = program.end()
    assert list_viewers() == []
    assert program.returncode == 0
    assert "no display here" in err


def test_hundreds_of_files_are_read_by_a_few_threads(tmp_path: Path) -> None:
    """The user's, and those of pages."""
    path = tmp_path / "picture.png"
    Image.new("RGB", (8, 8)).save(path)
    for apart in (False, True):
        sources = [FileSource(path, sandboxed=apart) for _ in range(200)]
        reading = [t for t in threading.enumerate() if t.name.startswith("read")]
        assert 0 < len(reading) <= 8
        for source in sources:
            source.close()
        wait_until(lambda threads=reading: not any(t.is_alive() for t in threads))
