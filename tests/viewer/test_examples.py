"""Examples run beside a viewer until it shows all that they publish.

tests/soak runs them to their end, and those with other people's packages.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from multiprocessing import resource_tracker

import pytest
import torch
from support.example_runs import (
    EXAMPLES,
    run_example,
    run_until_published,
    run_until_shown,
)
from support.viewer import Viewer

from splatview.api import script_controls
from splatview.rendering.camera import RenderCamera
from splatview.rendering.function import draw_picture
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.control.registry import Announcement

QUICK = [
    "gaussian_training",
    "image",
    "memory",
    "notebook",
    "render_nerfview",
    "render_triangles",
    "scalars",
    "second_process",
    "sharded",
    "streams",
    "training_cameras",
]

WITH_FUNCTIONS = ["render_features", "render_nerf"]
"""Trainings that a process of its own draws: tests/soak starts that, which takes 2 s."""
STEPS = 20


@pytest.fixture(scope="module", autouse=True)
def _started_tracker() -> None:
    """Start the program that multiprocessing leaves running once it is used."""
    resource_tracker.ensure_running()


@pytest.mark.parametrize("name", QUICK)
def test_viewer_shows_every_stream_of_an_example(
    name: str,
    open_viewer: Callable[..., Viewer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPLATVIEW_STRICT", "1")
    # The notebook finds a viewer, and starts none.
    with Announcement("http://127.0.0.1:7007/", host="127.0.0.1", port=7007):
        run_until_shown(name, open_viewer((900, 640)), monkeypatch)


@pytest.mark.parametrize("name", WITH_FUNCTIONS)
def test_function_of_an_example_draws_what_was_learned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, options = run_until_published(name, STEPS, monkeypatch)
    functions = importlib.import_module(options["render"].partition(":")[0])
    scene = getattr(functions, options["module"].partition(":")[2])()
    scene.load_state_dict(trained.state_dict())
    balls = importlib.import_module("functions.balls")
    view = balls.views_of_balls(5, 60, 48)[2]
    viewmat = tuple(view.viewmat.flatten().tolist())
    K = tuple(view.K.flatten().tolist())
    draw = Draw(0, "ab" * 16, 1, DrawnCamera(60, 48, viewmat, K))
    arguments = scene, RenderCamera.of(draw)
    picture = draw_picture(
        functions.picture, arguments, script_controls.registry.values()
    )
    difference = (picture.color / 255 - view.image).abs().mean()
    assert difference < 0.7 * view.image.mean()


def test_example_for_cuda_says_so_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", bool)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", ["render_2dgs"])
    with pytest.raises(SystemExit, match="needs a CUDA device"):
        run_example("render_2dgs")
