"""The viewer beside real trainers: streams that come, go, restart and fail."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.publishers import BOTH, IMAGE
from support.repetitions import exhaustive
from support.viewer import Viewer
from support.wait import PATIENCE

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import Wheel
from splatview.viewer_app.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from support.programs import Programs

    from splatview.viewer_app.catalogue import Slot
    from splatview.viewer_app.state import Entry


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(900, 520), AppOptions(max_fps=100))
    yield app
    app.close()


def entry(viewer: Viewer, name: str) -> Entry:
    return next(e for e in viewer.state.entries if e.name == name)


def shown(viewer: Viewer) -> Slot:
    slot = viewer.seat.shown
    assert slot is not None
    return slot


def sees(viewer: Viewer, grey: int) -> bool:
    """Whether the middle of the picture is this grey; draws once more."""
    viewer.turn()
    picture = viewer.picture()
    return bool((picture[picture.shape[0] // 2, picture.shape[1] // 2] == grey).all())


def test_a_stream_appears_by_itself_and_is_shown(viewer: Viewer, programs: Programs) -> None:
    begin = time.monotonic()
    programs.code(IMAGE, "77", "render")
    viewer.until(lambda: sees(viewer, 77))
    assert entry(viewer, "render").kind == "image"
    assert entry(viewer, "render").alive
    view = viewer.image
    assert view.size == (60, 40)
    zoom = view.zoom
    assert zoom == pytest.approx(620 / 60)
    left, top, _ = view.pan_zoom.placed(viewer.seat.layout())
    assert viewer.pixels()[round(top) + 3, round(left) + 3].tolist() == [255, 0, 0]  # the first pixel is on top left
    steps = [d for d in view.details if d.startswith("step ")]
    viewer.until(lambda: [d for d in view.details if d.startswith("step ")] > steps)  # and it moves on
    viewer.until(lambda: entry(viewer, "render").rate_hz > 1)
    latency = viewer.state.timings.latency_ms
    assert latency is not None
    assert 0 < latency < (time.monotonic() - begin) * 1e3  # from publish to the screen


def test_the_last_picture_stays_and_a_restart_continues(viewer: Viewer, programs: Programs) -> None:
    trainer = programs.code(IMAGE, "77", "render")
    viewer.until(lambda: sees(viewer, 77))
    viewer.do(Wheel(590, 247, 3))
    view, placed = viewer.image, viewer.image.pan_zoom.placed(viewer.seat.layout())
    trainer.kill()
    trainer.wait()
    viewer.until(lambda: not entry(viewer, "render").alive)
    assert sees(viewer, 77)
    assert entry(viewer, "render").note == "ended"
    programs.code(IMAGE, "160", "render")
    viewer.until(lambda: sees(viewer, 160))
    assert [e.name for e in viewer.state.entries] == ["render"]  # the same line of the list
    assert viewer.image is view
    assert view.pan_zoom.placed(viewer.seat.layout()) == placed
    assert entry(viewer, "render").alive


def test_only_what_is_shown_is_shared(viewer: Viewer, programs: Programs) -> None:
    programs.code(BOTH)
    viewer.until(lambda: len(viewer.state.entries) == 2)
    viewer.until(lambda: viewer.loaded() and not shown(viewer).view.empty)  # type: ignore[union-attr]
    assert shown(viewer).entry.name == "splats"  # Gaussians before images
    assert "step 7" in shown(viewer).view.details  # type: ignore[union-attr]
    assert viewer.picture().max() > 60
    streams = {s.name: s for s in viewer.catalogue.subscriber.streams}
    frame = streams["splats"].read()
    assert frame is not None
    frame.close()
    assert streams["render"].read() is None
    viewer.seat.select(entry(viewer, "render").key)
    viewer.until(lambda: shown(viewer).view is not None and not shown(viewer).view.empty)  # type: ignore[union-attr]
    assert viewer.image.size == (40, 30)
    viewer.until(lambda: streams["splats"].read() is None)  # given back


def test_pausing_a_run(viewer: Viewer, programs: Programs) -> None:
    from splatview.viewer_app.interface.panel import Asked

    programs.code(BOTH)
    viewer.until(lambda: viewer.state.shown is not None and viewer.state.shown.version > 0)
    viewer.seat._obey(Asked(pause=True))
    viewer.until(lambda: bool(viewer.state.shown and viewer.state.shown.paused))
    before = -1
    while before != viewer.state.shown.version:  # type: ignore[union-attr]
        before = viewer.state.shown.version  # type: ignore[union-attr]
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            viewer.turn()
    viewer.until(lambda: viewer.state.shown.waits == 2)  # type: ignore[union-attr]
    for _ in range(2):
        viewer.seat._obey(Asked(pause="step"))
        viewer.until(lambda n=before: viewer.state.shown.version > n)  # type: ignore[union-attr]
        viewer.until(lambda: viewer.state.shown.waits == 2)  # type: ignore[union-attr]
        before += 1
    assert viewer.state.shown.version == before  # type: ignore[union-attr]
    viewer.seat._obey(Asked(pause=False))
    viewer.until(lambda: viewer.state.shown.version > before + 3)  # type: ignore[union-attr]


def test_a_stopped_trainer_stops_nothing(viewer: Viewer, programs: Programs) -> None:
    trainer = programs.code(IMAGE, "77", "render")
    viewer.until(lambda: sees(viewer, 77))
    trainer.send_signal(signal.SIGSTOP)
    try:
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            viewer.turn()
        assert sees(viewer, 77)
        viewer.do(Wheel(590, 247, 3))
    finally:
        trainer.send_signal(signal.SIGCONT)


def test_one_run_alone_can_be_followed(programs: Programs) -> None:
    first = programs.code(IMAGE, "50", "render")
    second = programs.code(IMAGE, "90", "render")
    app = Viewer(OffscreenScreen(900, 520), AppOptions(run=str(second.pid), max_fps=100))
    app.until(lambda: sees(app, 90))
    assert len(app.state.entries) == 1
    assert first.poll() is None
    app.close()


# -- the program ---------------------------------------------------------------------------------------------


def serve(programs: Programs, *args: str, **env: str) -> subprocess.Popen[str]:
    return programs.splatview("serve", *args, **env)


@pytest.mark.parametrize("number", [signal.SIGTERM, exhaustive(signal.SIGINT), exhaustive(signal.SIGHUP)])
def test_serve_writes_what_it_shows_and_ends_cleanly(programs: Programs, tmp_path, wait_until,
                                                     number: signal.Signals) -> None:
    from PIL import Image

    programs.code(IMAGE, "77", "render")
    out = tmp_path / "out.png"
    program = serve(programs, "--offscreen", "--out", str(out), "--size", "900x520")

    def grey() -> bool:
        return out.exists() and Image.open(out).getpixel((590, 247)) == (77, 77, 77)

    wait_until(grey)
    picture = np.asarray(Image.open(out))
    assert picture.shape == (520, 900, 3)
    assert picture[:494, :280].std() > 1  # the panel is in it
    program.send_signal(number)
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


@pytest.mark.display
def test_serve_in_a_window(programs: Programs, display: str, wait_until, tmp_path) -> None:
    from PIL import Image

    picture = np.random.default_rng(0).integers(0, 256, (494, 620, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "in.png")
    out = tmp_path / "w.png"
    program = serve(programs, "in.png", "--window", "--no-vsync", "--size", "900x520", "--out", str(out),
                    DISPLAY=display)
    wait_until(lambda: out.exists() and np.array_equal(np.asarray(Image.open(out))[:494, 280:], picture))
    program.terminate()
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    assert err == ""


def test_serve_without_a_display_is_a_page_for_a_browser(programs: Programs, tmp_path, wait_until) -> None:
    from urllib.request import urlopen

    from splatview.ipc.viewers import viewers

    program = serve(programs, "--port", "0", "--out", str(tmp_path / "o.png"), "--size", "700x400", DISPLAY="",
                    WAYLAND_DISPLAY="", SSH_CONNECTION="203.0.113.5 50000 198.51.100.7 2222", USER="somebody")
    wait_until(viewers)
    viewer = viewers()[0]
    with urlopen(viewer.url, timeout=PATIENCE) as page:
        assert b"<title>splatview</title>" in page.read()
    wait_until((tmp_path / "o.png").exists)
    program.terminate()
    _, err = program.communicate(timeout=PATIENCE)
    assert viewers() == []
    assert program.returncode == 0
    assert "no display here" in err
    assert f"open http://127.0.0.1:{viewer.port}" in err
    assert f"ssh -L {viewer.port}:127.0.0.1:{viewer.port}" in err and "-p 2222" in err and "198.51.100.7" in err


def test_the_next_free_port_is_said_aloud(programs: Programs, wait_until) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = serve(programs, "--web", "--port", str(port))
        line = program.stderr.readline() + program.stderr.readline()  # type: ignore[union-attr]
        program.terminate()
        program.communicate(timeout=PATIENCE)
    assert f"port {port} is taken" in line
    assert program.returncode == 0


@pytest.mark.parametrize(("args", "message"), [
    (["--window", "--offscreen"], "--window and --offscreen exclude each other"),
    exhaustive(["--web", "--offscreen"], "--web and --offscreen exclude each other"),
    (["--offscreen", "--host", "0.0.0.0"], "--host is for --web"),
    (["--web", "--host", "203.0.113.77"], "203.0.113.77"),
    exhaustive(["--web", "--port", "70000"], "70000"),
    (["--window"], "no window could be opened"),
    (["--offscreen", "--size", "12"], "is not WIDTHxHEIGHT"),
    exhaustive(["--offscreen", "--max-fps", "0"], "--max-fps is 0"),
    exhaustive(["--offscreen", "--gpu-budget", "1.5"], "--gpu-budget is 1.5"),
])
def test_what_cannot_be_served_is_told(programs: Programs, args: list[str], message: str) -> None:
    program = serve(programs, *args, DISPLAY="", WAYLAND_DISPLAY="")
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [("serve", "--offscreen"), ("shot", "out.png")])
def test_a_variable_that_names_no_bridge_is_told(programs: Programs, command: tuple[str, ...]) -> None:
    program = programs.splatview(*command, SPLATVIEW_INTEROP="magic")
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 2
    assert "SPLATVIEW_INTEROP='magic'; legal are direct, import, register, host" in err
    assert "Traceback" not in err


def test_help_teaches(programs: Programs) -> None:
    program = serve(programs, "--help", COLUMNS="120")
    out, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0
    for word in ("--offscreen", "--run", "--max-fps", "Mouse", "usage: splatview serve"):
        assert word in out


def test_gaussians_that_come_later_are_shown_unless_somebody_chose(
        programs: Programs, viewer: Viewer) -> None:
    programs.code("""
import time, torch, splatview
splatview.publish(torch.zeros(8, 8, 3), "photo")
time.sleep(1.0)
scene = {"means": torch.rand(50, 3), "quats": torch.ones(50, 4), "scales": torch.zeros(50, 3) - 3,
         "opacities": torch.ones(50), "sh0": torch.rand(50, 1, 3)}
splatview.publish(scene)
time.sleep(60)
""")

    def shows(name: str) -> bool:
        slot = viewer.seat.shown
        return slot is not None and slot.entry.name == name

    viewer.until(lambda: shows("photo"))
    viewer.until(lambda: shows("gaussians"))
    viewer.seat.select(entry(viewer, "photo").key)
    for _ in range(20):
        viewer.turn()
        assert shows("photo")
