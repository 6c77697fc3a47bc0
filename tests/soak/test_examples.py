"""Every example runs to its end as a program, and a viewer draws what it publishes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from support.programs import ROOT

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

IN_OTHERS = {"lightning_callback": "lightning", "hf_trainer_callback": "transformers", "camera_detector": "torchvision"}
"""Examples with other people's trainers and models, and what those need; test_interop_hooks.py has more of them."""
MORE = {"sharded": ("--ranks", "2")}
"""Further options: each rank is a process that loads torch."""
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py")
                  if not p.stem.startswith("window_"))  # they need a display: tests/api/test_window_class.py
STREAMS = {"camera_detector": {"camera"}, "image": {"image"}, "gaussian_training": {"gaussians", "render"},
           "hf_trainer_callback": {"learned"},
           "lightning_callback": {"learned"}, "memory": {"learned", "memory"}, "notebook": {"waves"},
           "scalars": {"learned", "scalars"}, "second_process": {"edges"}, "sharded": {"gaussians", "scalars"},
           "streams": {"gaussians", "image", "depth"}, "training_cameras": {"ball", "cameras"}}


def needed(path: Path) -> None:
    """Skip where what an example needs is not installed."""
    package = IN_OTHERS.get(path.stem, "torch")
    if find_spec(package) is None:
        pytest.skip(f"needs {package}")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_ends_after_its_steps(path: Path, programs: Programs) -> None:
    needed(path)
    process = programs.python(path, "--steps", "3", *MORE.get(path.stem, ()), SPLATVIEW_STRICT="1")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "Warning" not in err or path.stem in IN_OTHERS  # what others warn of is theirs


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem in STREAMS], ids=lambda path: path.stem)
def test_a_viewer_draws_every_stream_of_an_example(path: Path, programs: Programs, tmp_path: Path,
                                                   wait_until: Callable[..., Any]) -> None:
    needed(path)
    process = programs.python(path, "--steps", "1000000", *MORE.get(path.stem, ()))
    with Subscriber() as viewer:
        wait_until(lambda: (viewer.poll(), {s.name for s in viewer.streams if s.version} >= STREAMS[path.stem])[-1])
    for stream in sorted(STREAMS[path.stem]):
        out = tmp_path / f"{stream}.png"
        shot = programs.splatview("shot", out, "--stream", stream, "--run", process.pid)
        _, err = shot.end()
        assert shot.returncode == 0, err
        colors = Image.open(out).convert("RGB").getcolors(1 << 24)
        assert colors is not None and len(colors) > 50  # a picture; one of NaN has a single colour
