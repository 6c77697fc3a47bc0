"""Every example runs to its end by itself, and a viewer draws what it publishes."""

import os
from importlib.util import find_spec

import numpy as np
import pytest
from patience import PATIENCE
from PIL import Image
from programs import ROOT

from splatview.ipc.runs import list_runs, runtime_folder

IN_OTHERS = {"lightning_callback": "lightning", "hf_trainer_callback": "transformers"}
"""Examples within other people's trainers, and what those need; test_interop_hooks.py has more of them."""
STARTED = {"image"}
"""Examples that are started as users start them; the others are forked."""
MORE = {"sharded": ("--ranks", "2")}
"""Further options: each rank is a process that loads torch."""
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py")
                  if p.stem != "nerfstudio_hook"  # nerfstudio's program
                  and not p.stem.startswith("window_"))  # they need a display: test_window_class.py
STREAMS = {"image": {"image"}, "gaussian_training": {"gaussians", "render"}, "hf_trainer_callback": {"learned"},
           "lightning_callback": {"learned"}, "memory": {"learned", "memory"}, "notebook": {"waves"},
           "scalars": {"learned", "scalars"}, "second_process": {"edges"}, "sharded": {"gaussians", "scalars"},
           "streams": {"gaussians", "image", "depth"}, "training_cameras": {"ball", "cameras"}}


def examples(paths, quick=None):
    """As parameters of a test; without what an example needs it is skipped. All but those of `quick` are exhaustive."""
    return [pytest.param(p, id=p.stem, marks=[
        pytest.mark.skipif(find_spec(IN_OTHERS.get(p.stem, "torch")) is None, reason=f"needs {IN_OTHERS.get(p.stem)}"),
        *([pytest.mark.exhaustive] if quick is not None and p.stem not in quick else [])]) for p in paths]


@pytest.mark.parametrize("path", examples(EXAMPLES))
def test_an_example_ends_after_its_steps(path, processes):
    start = processes.python if path.stem in STARTED else processes.forked
    process = start(str(path), "--steps", "3", *MORE.get(path.stem, ()), SPLATVIEW_STRICT="1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Warning" not in err or path.stem in IN_OTHERS  # what others warn of is theirs


@pytest.mark.exhaustive
def test_an_example_that_starts_a_process_ends_where_nothing_is_forked(processes):
    process = processes.python(str(ROOT / "examples/second_process.py"), "--steps", "3", SPLATVIEW_STRICT="1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Warning" not in err


@pytest.mark.parametrize("path", examples([p for p in EXAMPLES if p.stem in STREAMS],
                                          quick=("image", "streams")))
def test_a_viewer_draws_every_stream_of_an_example(path, processes, tmp_path, wait_until):
    process = processes.forked(str(path), "--steps", "1000000", *MORE.get(path.stem, ()))
    os.setpriority(os.PRIO_PROCESS, process.pid, 19)  # it works without a pause, and pictures are waited for
    wait_until(lambda: [r for r in list_runs(runtime_folder()) if r.description.pid == process.pid])
    for stream in sorted(STREAMS[path.stem]):
        out = tmp_path / f"{stream}.png"
        shot = processes.command("shot", str(out), "--stream", stream, "--run", str(process.pid))
        _, err = shot.communicate(timeout=PATIENCE)
        assert shot.returncode == 0, err
        rgb = np.asarray(Image.open(out).convert("RGB"))
        assert len(np.unique(rgb.reshape(-1, 3), axis=0)) > 50  # a picture; one of NaN has a single colour


def test_every_published_example_has_its_streams_named_here():
    publishing = {p.stem for p in EXAMPLES if "splatview.publish(" in p.read_text()}
    assert publishing == set(STREAMS)


def test_the_training_example_learns(processes):
    process = processes.forked(str(ROOT / "examples/gaussian_training.py"), "--steps", "101")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step")]
    assert losses[-1] < 0.5 * losses[0]
