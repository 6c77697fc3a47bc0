"""`splatview camera`: what it starts, ends and starts again.

All but one test replace the programs by small scripts.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.programs import Output, Programs, children
from support.wait import PATIENCE_S, wait_until
from support.web_clients import address, send_request

import splatview
from splatview.camera.capture import PLAYED
from splatview.camera.pattern import read_index, square
from splatview.camera.programs import launch
from splatview.camera.sources import CaptureSettings
from splatview_ipc.control.run_folder import list_runs, runtime_folder

FIND = """
import numpy as np
def square(image):
    ys, xs = np.where((image == 255).all(2))
    return {"boxes": [[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]], "labels": ["square"]}
"""
WAIT = "import signal; signal.pause()"
ENDED = f"print({PLAYED!r}, flush=True)\n"
KINDS = {
    "splatview.camera.capture": "capture",
    "splatview.camera.inference": "infer",
    "splatview_viewer": "serve",
}
DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@dataclass
class Launched:
    code: int
    output: str
    started: list[str]
    """The programs, in the order of their starts."""


@pytest.fixture
def launched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Launched]:
    """Launch a camera whose programs are scripts: each start takes the next of
    `capture`, `infer` or `serve`. SIGTERM comes as soon as `until` has been said.
    """
    monkeypatch.setattr("splatview.camera.programs.RESTART_S", 0.01)
    monkeypatch.chdir(tmp_path)

    def run(
        stop_text: str = "",
        *,
        source: str = "test",
        loop: bool = True,
        out: Path | None = None,
        **scripts: list[str],
    ) -> Launched:
        started = []
        earlier_children = children(os.getpid())

        def command(module: str, *arguments: str) -> list[str]:
            started.append(KINDS[module])
            return [sys.executable, "-I", "-S", "-c", scripts[KINDS[module]].pop(0)]

        output = Output(stop_text, partial(signal.raise_signal, signal.SIGTERM))
        viewer: tuple[()] | None = None
        if "serve" in scripts:
            viewer = ()
        detector: dict[str, object] | None = None
        if "infer" in scripts:
            detector = {"detect": "people"}
        with monkeypatch.context() as patch:
            patch.setattr("splatview_ipc.system.child_program.command", command)
            patch.setattr(sys, "stderr", output)
            code = launch(
                CaptureSettings(source=source, loop=loop),
                detector,
                viewer,
                offscreen=True,
                out=out,
            )
        assert children(os.getpid()) == earlier_children, "all have ended"
        assert not any(scripts.values()), "all were started"
        return Launched(code, output.getvalue(), started)

    return run


pytestmark = pytest.mark.programs


def test_closing_the_viewer_ends_all(launched: Callable[..., Launched]) -> None:
    for ending, code in (("", 0), ("raise SystemExit(3)", 3), (DIE, 1)):
        assert launched(capture=[WAIT], infer=[WAIT], serve=[ending]).code == code


def test_programs_that_die_are_started_again(launched: Callable[..., Launched]) -> None:
    second_script = "print('again', flush=True)\n" + WAIT
    outcome = launched(
        "detector: again", capture=[WAIT], infer=["raise SystemExit(3)", second_script]
    )
    assert outcome.code == 0
    assert (
        "detector: it ended with code 3\ndetector: it is started again"
        in outcome.output
    )
    outcome = launched("camera: again", capture=[DIE, second_script], serve=[WAIT])
    assert "camera: it ended by a signal (Killed)\n" in outcome.output
    assert sorted(outcome.started) == ["capture", "capture", "serve"], (
        "the viewer stays"
    )


def test_program_that_cannot_run_ends_with_its_reason(
    launched: Callable[..., Launched],
) -> None:
    """Pictures go on without a detector; without a source all ends."""
    explain = "import sys; print('no such thing', file=sys.stderr); sys.exit(2)"
    outcome = launched("pictures go on without it", capture=[WAIT], infer=[explain])
    assert outcome.code == 0
    assert "detector: no such thing" in outcome.output
    outcome = launched(capture=[explain], serve=[WAIT])
    assert (outcome.code, outcome.output) == (2, "camera: no such thing\n")


def test_lines_of_libjpeg_about_damaged_pictures_are_not_printed(
    launched: Callable[..., Launched],
) -> None:
    script = "import sys; print('Corrupt JPEG data: bad Huffman code\\nsaid', file=sys.stderr); sys.exit(2)"
    output = launched(capture=[script]).output
    assert output.endswith("camera: said\n")
    assert "Huffman" not in output


def test_file_that_was_played_waits_for_its_picture(
    launched: Callable[..., Launched], tmp_path: Path
) -> None:
    assert launched(loop=False, capture=[ENDED + WAIT]).code == 0, (
        "without a viewer there is none"
    )
    out = tmp_path / "a.png"
    draw = "open('a.png', 'w').close()\n"
    assert (
        launched(loop=False, out=out, capture=[ENDED + WAIT], serve=[draw + WAIT]).code
        == 0
    )
    assert out.exists()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("0", "camera /dev/video0"),
        ("/a/street.mp4", "camera street.mp4"),
        ("rtsp://me:secret@porch:554/a?token=b", "camera porch"),
        ("rtsp://me:p@s[s@porch/a", "camera porch"),
        ("udp://@:5000", "camera network"),
        ("a ! b", "camera pipeline"),
    ],
)
def test_run_is_named_after_its_source(
    launched: Callable[..., Launched], source: str, name: str
) -> None:
    script = "import os, sys; print(os.environ['SPLATVIEW_NAME'], file=sys.stderr); sys.exit(2)"
    assert launched(source=source, capture=[script]).output.endswith(
        f"camera: {name}\n"
    )


def test_capture_detector_and_viewer_run_as_three_programs(
    programs: Programs, tmp_path: Path
) -> None:
    """The programs themselves: boxes that a function found lie where the square was in
    the very picture that they belong to, and on the picture of the viewer.
    """
    (tmp_path / "find.py").write_text(FIND)
    out = tmp_path / "out.png"
    running = programs.splatview(
        "camera",
        "test",
        "--size",
        "160x120",
        "--detect",
        "find:square",
        "--offscreen",
        "--out",
        out,
        "--window-size",
        "1100x760",
        "--fps",
        "10",
        "--max-fps",
        "10",
    )
    index_of = {}
    with (
        splatview.frames("camera", timeout=PATIENCE_S) as pictures,
        splatview.frames("camera overlay", timeout=PATIENCE_S) as overlays,
    ):
        result = overlays.latest()
        while result.meta["version"] not in index_of or result.meta.get("trouble"):
            frame = next(pictures)
            index_of[frame.version] = read_index(frame.numpy())
            result = overlays.latest()
        assert tuple(result.tensors["boxes"].numpy()[0]) == square(
            index_of[result.meta["version"]], 160, 120
        )
        assert result.meta["by"] == "find:square"
    wait_until(out.exists)

    def has_white_words() -> bool:
        is_white = (np.asarray(Image.open(out).convert("RGB")) == 255).all(2)
        return is_white.sum() > 1000

    wait_until(has_white_words)
    names = {folder.description.name for folder in list_runs(runtime_folder())}
    assert names == {"camera test"}
    started = children(running.pid)
    assert len(started) == 3
    running.send_signal(signal.SIGINT)
    _, output = running.end()
    assert running.returncode == 0, output
    assert "camera: a test picture, 160 x 120 at 10/s" in output
    assert not any(os.path.exists(f"/proc/{pid}") for pid in started)
    assert not list_runs(runtime_folder())


def test_viewer_of_a_camera_answers_to_names_of_proxies(programs: Programs) -> None:
    names = "a.example", "b.example"
    options = [option for name in names for option in ("--allow-host", name)]
    program = programs.splatview("camera", "test", "--port", "0", *options)
    port, _ = address(program, [])
    for name, status in ((names[0], 200), (names[1], 200), ("c.example", 403)):
        assert send_request(port, "/", Host=name).status == status
