"""Every example runs to its end as a program, and a viewer draws what it publishes."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageGrab
from support.example_runs import ARGUMENTS, EXAMPLES, MIN_COLORS, STREAMS, color_count
from support.frames import host_array
from support.programs import Programs
from support.reading import newest, next_frame, stream_of
from support.wait import wait_until

from splatview_ipc.subscriber.subscriber import Subscriber

IN_OTHERS = {
    "lightning_callback": "lightning",
    "hf_trainer_callback": "transformers",
    "camera_detector": "torchvision",
}
"""Examples with other people's trainers and models, and what those need."""
ON_CUDA = ("render_2dgs",)
"""Examples that need a GPU."""
WINDOWS = ("window_image", "window_scene")
"""Examples with a window of their own, which need a display."""
SCRIPTS = sorted(p for p in EXAMPLES.glob("*.py") if p.stem not in WINDOWS)


def stem(path: Path) -> str:
    return path.stem


def skip_without_needs(path: Path) -> None:
    """Skip the test where a package or a GPU that the example needs is missing."""
    package = IN_OTHERS.get(path.stem, "torch")
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")
    if path.stem in ON_CUDA and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_example_ends_after_its_steps(path: Path, programs: Programs) -> None:
    skip_without_needs(path)
    process = programs.python(
        path, "--steps", "3", *ARGUMENTS.get(path.stem, []), SPLATVIEW_STRICT="1"
    )
    _, err = process.communicate()
    assert process.returncode == 0, err
    # The warnings of other packages are not ours.
    assert "Warning" not in err or path.stem in IN_OTHERS


@pytest.mark.parametrize("path", SCRIPTS, ids=stem)
def test_viewer_draws_every_stream_of_an_example(
    path: Path, programs: Programs, tmp_path: Path
) -> None:
    skip_without_needs(path)
    process = programs.python(path, "--steps", "1000000", *ARGUMENTS.get(path.stem, []))
    streams = STREAMS[path.stem]
    with Subscriber() as viewer:

        def has_all_streams() -> bool:
            viewer.poll()
            names = {s.name for s in viewer.streams if s.version}
            return names.issuperset(streams)

        wait_until(has_all_streams)
    for stream in streams:
        out = tmp_path / f"{stream}.png"
        command = ("shot", out, "--stream", stream, "--run", process.pid)

        def has_colors(command: tuple[object, ...] = command, out: Path = out) -> bool:
            shot = programs.splatview(*command)
            _, err = shot.end()
            assert shot.returncode == 0, err
            pixels = np.asarray(Image.open(out).convert("RGB"), int)
            return color_count(pixels) > MIN_COLORS

        # What a network draws is grey before it has learned anything.
        wait_until(has_colors, f"a picture of {stream} has colours")


@pytest.mark.parametrize("name", WINDOWS)
def test_window_of_an_example_shows_its_picture(
    name: str, display: str, programs: Programs
) -> None:
    programs.python(EXAMPLES / f"{name}.py", SPLATVIEW_STRICT="1")

    def is_shown() -> bool:
        pixels = np.asarray(ImageGrab.grab(xdisplay=display).convert("RGB"), int)
        return color_count(pixels) > MIN_COLORS

    wait_until(is_shown)


PATCH = EXAMPLES / "gsplat_simple_trainer.patch"
TRAINER = """
import json, sys, textwrap
from types import SimpleNamespace
import numpy as np
import torch
import splatview
n = 50
self = SimpleNamespace(splats=torch.nn.ParameterDict({
    "means": torch.randn(n, 3), "scales": torch.randn(n, 3), "quats": torch.randn(n, 4), "opacities": torch.randn(n),
    "sh0": torch.randn(n, 1, 3), "shN": torch.randn(n, 15, 3)}))
self.parser = SimpleNamespace(
    camera_ids=[1, 2, 2], camtoworlds=np.stack([np.eye(4)] * 3), Ks_dict={1: np.eye(3) * 50, 2: np.eye(3) * 50},
    imsize_dict={1: (40, 30), 2: (40, 30)}, params_dict={1: [], 2: [0.1]}, image_paths=["a.png", "b.png", "c.png"])
self.trainset = SimpleNamespace(indices=np.array([0, 2]))
cfg = SimpleNamespace(antialiased=True)
world_rank, world_size = 0, 1
before, begin, end = (textwrap.dedent(text) for text in json.loads(sys.stdin.readline()))
exec(before)
for step in range(2500):
    sh_degree_to_use = min(step // 1000, 3)
    data = {"image_id": torch.tensor([step % 2])}
    exec(begin)
    colors = (self.splats["means"][None, :48].reshape(1, 6, 8, 3) * 1.0)
    loss = l1loss = ssimloss = colors.mean()
    exec(end)
print("done", flush=True)
sys.stdin.readline()
"""


def added_lines(hunk: str) -> str:
    return "\n".join(line[1:] for line in hunk.splitlines() if line[:1] == "+")


def test_patched_trainer_publishes_what_it_trains(programs: Programs) -> None:
    """The patch's very lines, with the names that the trainer has there."""
    _, _, *hunks = PATCH.read_text().split("\n@@")
    process = programs.code(TRAINER, SPLATVIEW_STRICT="1")
    process.write_line(json.dumps([added_lines(hunk) for hunk in hunks]))
    assert process.line() == "done", process.end()[1]
    with Subscriber() as subscriber:
        _, meta, tensors = newest(subscriber, "gaussians", 2499)
        assert (meta["step"], meta["sh_degree"], meta["antialiased"]) == (2499, 2, True)
        assert tensors["shN"].shape == (50, 15, 3)
        _, meta, tensors = newest(subscriber, "render", 2499)
        assert tensors["image"].shape == (6, 8, 3)
        assert tensors["image"].min() == 0
        assert tensors["image"].max() == 1
        with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
            paths = host_array(frame.tensors["paths"]).tobytes().decode().split("\0")
            assert [Path(path).name for path in paths[:2]] == ["a.png", ""]
