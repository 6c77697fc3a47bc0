"""The viewer and runs: streams that come, go, restart and pause; and the program `splatview serve`."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from PIL import Image
from support.wait import PATIENCE, wait_until

import splatview
from splatview_ipc.control.registry import viewers
from splatview_viewer.app.loop import step
from splatview_viewer.core.events import Wheel
from splatview_viewer.shell.panel import Asked

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs
    from support.viewer import Viewer

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.workspace.catalogue import Slot


def publish_grey(value: int, name: str = "render", step: int = 0) -> None:
    image = torch.full((40, 60, 3), value, dtype=torch.uint8)
    image[0, 0] = torch.tensor([255, 0, 0], dtype=torch.uint8)
    splatview.publish(image, name, step=step)


def publish_splats(step: int = 7) -> None:
    g = torch.Generator().manual_seed(0)
    splatview.publish({"means": torch.randn(300, 3, generator=g), "quats": torch.randn(300, 4, generator=g),
                       "scales": torch.full((300, 3), -2.0), "opacities": torch.full((300,), 3.0),
                       "sh0": torch.rand(300, 1, 3, generator=g)}, "splats", step=step)


def entry(viewer: Viewer, name: str) -> Entry:
    return next(e for e in viewer.state.entries if e.name == name)


def shown(viewer: Viewer) -> Slot:
    slot = viewer.seat.shown
    assert slot is not None
    return slot


def sees(viewer: Viewer, grey: int) -> bool:
    """Whether the middle of the picture is this grey; draws once more."""
    step(viewer)
    picture = viewer.picture()
    return bool((picture[picture.shape[0] // 2, picture.shape[1] // 2] == grey).all())


def test_a_stream_appears_by_itself_and_is_shown(viewer: Viewer) -> None:
    publish_grey(77)
    viewer.until(lambda: sees(viewer, 77))
    assert entry(viewer, "render").kind == "image"
    assert entry(viewer, "render").alive
    view = viewer.image
    assert view.size == (60, 40)
    assert view.zoom == pytest.approx(620 / 60)
    left, top, _ = view.pan_zoom.placed(viewer.seat.layout())
    assert viewer.pixels()[round(top) + 3, round(left) + 3].tolist() == [255, 0, 0]  # the first pixel is on top left
    publish_grey(90, step=1)
    viewer.until(lambda: sees(viewer, 90))
    assert "step 1" in view.info().details
    viewer.until(lambda: viewer.state.timings.latency_ms is not None)


def test_the_last_picture_stays_and_a_restart_continues(viewer: Viewer) -> None:
    publish_grey(77)
    viewer.until(lambda: sees(viewer, 77))
    viewer.do(Wheel(590, 247, 3))
    view, placed = viewer.image, viewer.image.pan_zoom.placed(viewer.seat.layout())
    splatview.close()
    viewer.until(lambda: not entry(viewer, "render").alive)
    assert sees(viewer, 77)
    assert entry(viewer, "render").note == "ended"
    publish_grey(160)
    viewer.until(lambda: sees(viewer, 160))
    assert [e.name for e in viewer.state.entries] == ["render"]  # the same line of the list
    assert viewer.image is view
    assert view.pan_zoom.placed(viewer.seat.layout()) == placed
    assert entry(viewer, "render").alive


def test_only_what_is_shown_is_shared(viewer: Viewer) -> None:
    publish_grey(77)
    publish_splats()
    viewer.until(lambda: len(viewer.state.entries) == 2)
    viewer.until(lambda: viewer.loaded() and shown(viewer).entry.name == "splats")  # Gaussians before images
    assert "step 7" in shown(viewer).view.details  # type: ignore[union-attr]
    assert viewer.picture().max() > 60
    streams = {s.name: s for s in viewer.catalogue.subscriber.streams}
    assert streams["splats"].opened and not streams["render"].opened
    viewer.seat.select(entry(viewer, "render").key)
    viewer.until(lambda: viewer.loaded() and streams["render"].opened)
    assert viewer.image.size == (60, 40)
    viewer.until(lambda: not streams["splats"].opened)


def test_gaussians_that_come_later_are_shown_unless_an_entry_was_chosen(viewer: Viewer) -> None:
    publish_grey(77)
    viewer.until(lambda: sees(viewer, 77))
    publish_splats()
    viewer.until(lambda: viewer.loaded() and shown(viewer).entry.name == "splats")
    viewer.seat.select(entry(viewer, "render").key)
    publish_splats(step=8)
    viewer.until(lambda: entry(viewer, "splats").version == 2 and sees(viewer, 77))


def test_pausing_a_run(viewer: Viewer) -> None:
    publish_grey(1)
    viewer.until(lambda: sees(viewer, 1))
    state = entry(viewer, "render")
    viewer.seat._obey(Asked(pause=True))
    viewer.until(lambda: bool(state.paused))

    def train() -> None:
        for value in range(2, 6):
            publish_grey(value)
            splatview.wait_while_paused()

    trainer = threading.Thread(target=train)
    trainer.start()
    for value in (2, 3, 4):
        viewer.until(lambda value=value: sees(viewer, value) and state.waits == 2)
        viewer.seat._obey(Asked(pause="step" if value < 4 else False))
    trainer.join(PATIENCE)
    viewer.until(lambda: sees(viewer, 5) and not state.paused)


# -- the program ------------------------------------------------------------------------------------------------------


def test_serve_writes_what_it_shows_and_ends_cleanly(programs: Programs, tmp_path: Path) -> None:
    publish_grey(77)
    out = tmp_path / "out.png"
    program = programs.splatview("serve", "--offscreen", "--out", out, "--size", "900x520")
    wait_until(lambda: out.exists() and Image.open(out).getpixel((590, 247)) == (77, 77, 77))
    picture = np.asarray(Image.open(out))
    assert picture.shape == (520, 900, 3)
    assert picture[:494, :280].std() > 1  # the panel is in it
    program.send_signal(signal.SIGTERM)
    _, err = program.end()
    assert program.returncode == 0, err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


def test_serve_without_a_display_is_a_page_for_a_browser(programs: Programs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = programs.splatview("serve", "--port", port, DISPLAY="", WAYLAND_DISPLAY="", USER="somebody",
                                     SSH_CONNECTION="203.0.113.5 50000 198.51.100.7 2222")
        wait_until(viewers)
    viewer = viewers()[0]
    with urlopen(viewer.url, timeout=PATIENCE) as page:
        assert b"<title>splatview</title>" in page.read()
    program.terminate()
    _, err = program.end()
    assert viewers() == []
    assert program.returncode == 0
    assert "no display here" in err
    assert f"port {port} is taken" in err
    assert f"open http://127.0.0.1:{viewer.port}" in err
    assert f"ssh -L {viewer.port}:127.0.0.1:{viewer.port}" in err and "-p 2222" in err and "198.51.100.7" in err
