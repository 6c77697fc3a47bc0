"""Every example runs to its end by itself, and a viewer draws what it publishes."""

import os
from importlib.util import find_spec

import pytest
from PIL import Image
from support.programs import ROOT
from support.repetitions import exhaustive
from support.wait import PATIENCE

from splatview.ipc import Subscriber

IN_OTHERS = {"lightning_callback": "lightning", "hf_trainer_callback": "transformers"}
"""Examples within other people's trainers, and what those need; test_interop_hooks.py has more of them."""
MORE = {"sharded": ("--ranks", "2")}
"""Further options: each rank is a process that loads torch."""
SLOW = {*IN_OTHERS, "second_process", "sharded"}
"""Examples that load torch in a further process, or that test_interop_hooks.py runs as well."""
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


def check_end(path, start, *more):
    process = start(str(path), "--steps", "3", *more, SPLATVIEW_STRICT="1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "Warning" not in err or path.stem in IN_OTHERS  # what others warn of is theirs


@pytest.mark.parametrize("path", examples(EXAMPLES, quick={p.stem for p in EXAMPLES} - SLOW))
def test_an_example_ends_after_its_steps(path, programs):
    check_end(path, programs.python, *MORE.get(path.stem, ()))


def test_the_sharded_example_ends_with_one_rank(programs):
    check_end(ROOT / "examples/sharded.py", programs.python, "--ranks", "1")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["image", "second_process"])
def test_an_example_ends_where_nothing_is_forked(name, programs):
    check_end(ROOT / f"examples/{name}.py", programs.python)


@pytest.mark.parametrize("path", examples([p for p in EXAMPLES if p.stem in STREAMS],
                                          quick=("image",)))
def test_a_viewer_draws_every_stream_of_an_example(path, programs, tmp_path, wait_until):
    process = programs.python(str(path), "--steps", "1000000", *MORE.get(path.stem, ()))
    with Subscriber() as viewer:
        wait_until(lambda: (viewer.poll(), {s.name for s in viewer.streams if s.version} >= STREAMS[path.stem])[-1])
    os.setpriority(os.PRIO_PROCESS, process.pid, 5)  # it works without a pause, and pictures are waited for
    for stream in sorted(STREAMS[path.stem]):
        out = tmp_path / f"{stream}.png"

        def drawn(out=out, stream=stream):
            shot = programs.splatview("shot", str(out), "--stream", stream, "--run", str(process.pid))
            _, err = shot.communicate(timeout=PATIENCE)
            assert not shot.returncode or "brought no frame within" in err, err  # a busy machine may be slower
            return not shot.returncode

        wait_until(drawn)
        colors = Image.open(out).convert("RGB").getcolors(1 << 24)
        assert colors is not None and len(colors) > 50  # a picture; one of NaN has a single colour


def test_every_published_example_has_its_streams_named_here():
    publishing = {p.stem for p in EXAMPLES if "splatview.publish(" in p.read_text()}
    assert publishing == set(STREAMS)


@pytest.mark.parametrize(("steps", "part"), [(41, 0.7), exhaustive(101, 0.5)])
def test_the_training_example_learns(steps, part, programs):
    """The loss becomes less than that part of what it was."""
    process = programs.python(str(ROOT / "examples/gaussian_training.py"), "--steps", str(steps))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    losses = [float(line.split()[-1]) for line in out.splitlines() if line.startswith("step")]
    assert losses[-1] < part * losses[0]
