"""The callbacks for other people's trainers, and examples/ with them, where the libraries are installed."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest
from support.programs import ROOT
from support.reading import newest

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:

    from support.programs import Programs

# gsplat's simple_trainer.py

PATCH = ROOT / "examples" / "gsplat_simple_trainer.patch"
TRAINER = """
import json, sys, textwrap
from types import SimpleNamespace
import torch
import splatview
n = 50
self = SimpleNamespace(splats=torch.nn.ParameterDict({
    "means": torch.randn(n, 3), "scales": torch.randn(n, 3), "quats": torch.randn(n, 4), "opacities": torch.randn(n),
    "sh0": torch.randn(n, 1, 3), "shN": torch.randn(n, 15, 3)}))
cfg = SimpleNamespace(antialiased=True)
added = textwrap.dedent(json.loads(sys.stdin.readline()))
for step in range(2500):
    sh_degree_to_use = min(step // 1000, 3)
    colors = (self.splats["means"][None, :48].reshape(1, 6, 8, 3) * 1.0)
    exec(added)
print("done", flush=True)
sys.stdin.readline()
"""


def test_what_the_patch_adds_shows_gaussians_and_renders(programs: Programs) -> None:
    """Its very lines, with the names that the trainer has there."""
    _, _, loop = PATCH.read_text().split("\n@@")
    process = programs.code(TRAINER, SPLATVIEW_STRICT="1")
    process.say(json.dumps("\n".join(line[1:] for line in loop.splitlines() if line[:1] == "+")))
    assert process.line() == "done", process.end()[1]
    with Subscriber() as subscriber:
        _, meta, tensors = newest(subscriber, "gaussians", 2499)
        assert (meta["step"], meta["sh_degree"], meta["antialiased"]) == (2499, 2, True)
        assert tensors["shN"].shape == (50, 15, 3)
        _, meta, tensors = newest(subscriber, "render", 2499)
        assert tensors["image"].shape == (6, 8, 3)
        assert tensors["image"].min() == 0 and tensors["image"].max() == 1  # within what an image may have


# nerfstudio

NERFSTUDIO = """
import sys
from types import SimpleNamespace
import torch
from nerfstudio.engine.callbacks import TrainingCallbackLocation
from nerfstudio.engine.trainer import Trainer
from nerfstudio.models.splatfacto import SplatfactoModelConfig
from splatview.integrations.nerfstudio import show

degree, n = 3, 50
model = torch.nn.Module()
model.config = SplatfactoModelConfig(sh_degree=degree, rasterize_mode="antialiased")
model.gauss_params = torch.nn.ParameterDict({
    "means": torch.randn(n, 3), "scales": torch.randn(n, 3), "quats": torch.randn(n, 4),
    "features_dc": torch.full((n, 3), 0.5), "features_rest": torch.zeros(n, (degree + 1) ** 2 - 1, 3),
    "opacities": torch.randn(n, 1)})
model.features_dc = model.gauss_params["features_dc"]
trainer = object.__new__(Trainer)  # whose set-up needs a data set and a GPU
trainer.pipeline, trainer.callbacks, trainer.local_rank = SimpleNamespace(model=model), [], 0
show(trainer)
for step in range(2001):
    for location in TrainingCallbackLocation:  # as its train() does
        for callback in trainer.callbacks:
            callback.run_callback_at_location(step, location=location)
print("done", flush=True)
sys.stdin.readline()
"""


def test_nerfstudio_calls_the_hook(programs: Programs) -> None:
    if importlib.util.find_spec("nerfstudio") is None:
        pytest.skip("needs nerfstudio")
    process = programs.code(NERFSTUDIO, SPLATVIEW_STRICT="1")
    assert "done" in iter(process.line, ""), process.end()[1]
    with Subscriber() as subscriber:
        _, meta, tensors = newest(subscriber, "gaussians", 2000)
    assert (meta["step"], meta["sh_degree"], meta["antialiased"]) == (2000, 2, True)
    assert meta["color"] == "sh" and "shN" in tensors and (tensors["sh0"] == 0.5).all()
