"""Every example runs to its end by itself, and a viewer draws what it publishes."""

import numpy as np
import pytest
from patience import PATIENCE
from PIL import Image
from programs import ROOT

from ipc.runs import list_runs, runtime_folder

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
STREAMS = {"image": {"image"}, "gaussian_training": {"gaussians", "render"},
           "memory": {"learned", "memory"}, "notebook": {"waves"}, "streams": {"gaussians", "image", "depth"}}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_ends_after_its_steps(path, processes):
    process = processes.python(str(path), "--steps", "3", SPLATVIEW_STRICT="1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Warning" not in err


@pytest.mark.parametrize("path", [p for p in EXAMPLES if p.stem in STREAMS], ids=lambda path: path.stem)
def test_a_viewer_draws_every_stream_of_an_example(path, processes, tmp_path, wait_until):
    process = processes.python(str(path), "--steps", "1000000")
    wait_until(lambda: [r for r in list_runs(runtime_folder()) if r.description.pid == process.pid])
    for stream in sorted(STREAMS[path.stem]):
        out = tmp_path / f"{stream}.png"
        shot = processes.splatview("shot", str(out), "--stream", stream, "--run", str(process.pid))
        _, err = shot.communicate(timeout=PATIENCE)
        assert shot.returncode == 0, err
        rgb = np.asarray(Image.open(out).convert("RGB"))
        assert len(np.unique(rgb.reshape(-1, 3), axis=0)) > 50  # a picture; one of NaN has a single colour


def test_every_published_example_has_its_streams_named_here():
    publishing = {p.stem for p in EXAMPLES if "splatview.publish(" in p.read_text()}
    assert publishing == set(STREAMS)


def test_the_training_example_learns(processes):
    process = processes.python(str(ROOT / "examples/gaussian_training.py"), "--steps", "101")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step")]
    assert losses[-1] < 0.5 * losses[0]
