"""Examples run in this process, beside a viewer that takes a turn at each publish."""

from __future__ import annotations

import functools
import json
import multiprocessing
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed

import splatview
from splatview_viewer.kinds.rendered.view import RenderedView
from support.programs import ROOT
from support.viewer import Viewer
from support.wait import polls

EXAMPLES = ROOT / "examples"
STREAMS = {
    "camera_detector": ["camera"],
    "gaussian_training": ["gaussians", "render"],
    "grab": ["ball", "turntable"],
    "hf_trainer_callback": ["learned"],
    "image": ["image"],
    "lightning_callback": ["learned"],
    "memory": ["learned", "memory"],
    "notebook": ["waves"],
    "render_2dgs": ["discs"],
    "render_deformation": ["turning"],
    "render_features": ["features"],
    "render_nerf": ["nerf"],
    "render_nerfview": ["sky"],
    "render_triangles": ["triangles"],
    "scalars": ["learned", "scalars"],
    "second_process": ["edges"],
    "sharded": ["gaussians", "scalars"],
    "streams": ["gaussians", "image", "depth"],
    "training_cameras": ["ball", "cameras"],
    "two_runs": ["learned", "scalars"],
}
"""What each example publishes, the streams that a picture of it shows first."""
ARGUMENTS = {"sharded": ["--ranks", "2"]}
"""Further arguments: each rank is a process that loads torch."""
_MANY = "1000000000"
"""Steps that no example takes before all of its streams are shown."""
MIN_COLORS = 50
"""Colours of a picture; one of NaN has a single colour."""
_PUBLISHING = ("publish", "publish_cameras", "publish_memory", "log", "draw")


class AllShown(BaseException):
    """Ends an example whose streams were shown."""


def color_count(pixels: np.ndarray) -> int:
    """Return the number of colours of a picture, (H, W, 3) integers up to 255."""
    return len(np.unique(pixels @ np.array([1, 256, 65536])))


def show_streams(viewer: Viewer, names: list[str]) -> Iterator[None]:
    """Yield between turns of a viewer until it has shown a picture of each stream."""
    for name in names:
        for _ in polls(f"stream {name} is shown", pauses=False):
            viewer.step()
            keys = [
                entry.key
                for entry in viewer.state.entries
                if entry.name.partition(" \u00b7 ")[0] == name
            ]
            if keys and viewer.user.layout.active.key != keys[-1]:
                viewer.user.select(keys[-1])
            if keys and is_drawn(viewer) and color_count(viewer.picture()) > MIN_COLORS:
                break
            yield


def is_drawn(viewer: Viewer) -> bool:
    """Return whether the active viewport shows a value, drawn by a function if need be."""
    view = viewer.user.view
    if view is None or view.empty:
        return False
    drawn_view = viewer.shows(RenderedView)
    return drawn_view is None or drawn_view.picture is not None


def code_of_notebook(path: Path) -> str:
    """Return the cells of code of a notebook as one script."""
    cells = json.loads(path.read_text())["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    return "\n\n".join(sources)


def run_example(name: str) -> None:
    """Run a script or a notebook as a program does; sys.argv has its arguments."""
    notebook = EXAMPLES / f"{name}.ipynb"
    if notebook.exists():
        exec(compile(code_of_notebook(notebook), notebook, "exec"), {})
    else:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def run_until_shown(
    name: str, viewer: Viewer, patch: pytest.MonkeyPatch, more_turns: int = 0
) -> None:
    """Run an example until a viewer has shown all of its streams.

    Args:
        name: the name of its file, without a suffix.
        viewer: takes a turn at each of the example's calls that publish.
        patch: undoes what this changes in the process.
        more_turns: turns of the viewer after that.
    """
    showing = show_streams(viewer, STREAMS[name])
    turns_left = iter(range(more_turns))

    def take_turn(publish: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = publish(*args, **options)
        if next(showing, AllShown) is not AllShown:
            return result
        viewer.step()
        if next(turns_left, AllShown) is AllShown:
            raise AllShown
        return result

    run_with(name, take_turn, patch)


def run_until_published(
    name: str, count: int, patch: pytest.MonkeyPatch
) -> tuple[Any, dict[str, Any]]:
    """Run an example until it has published so often; return what, and the options."""
    values: list[tuple[Any, dict[str, Any]]] = []

    def take_value(
        _: Callable[..., Any], value: Any, *names: str, **options: Any
    ) -> None:
        values.append((value, options))
        if len(values) == count:
            raise AllShown

    run_with(name, take_value, patch)
    return values[-1]


def run_with(
    name: str, publishing: Callable[..., Any], patch: pytest.MonkeyPatch
) -> None:
    """Run an example until it is ended by AllShown.

    Args:
        name: the name of its file, without a suffix.
        publishing: called with each function that publishes and its arguments, instead.
        patch: undoes what this changes in the process.
    """
    for function in _PUBLISHING:
        replacement = functools.partial(publishing, getattr(splatview, function))
        patch.setattr(splatview, function, replacement)
    # As where the script is run by its name.
    patch.syspath_prepend(str(EXAMPLES))
    patch.setattr(sys, "argv", [name, "--steps", _MANY, *ARGUMENTS.get(name, [])])
    # Examples with several processes set them, and are ended amid their work.
    patch.setenv("MASTER_ADDR", "127.0.0.1")
    patch.setenv("MASTER_PORT", "0")
    thread_count = torch.get_num_threads()
    try:
        with pytest.raises(AllShown):
            run_example(name)
    finally:
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        if distributed.is_initialized():
            distributed.destroy_process_group()
        torch.set_num_threads(thread_count)
