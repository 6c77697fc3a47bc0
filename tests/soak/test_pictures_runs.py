"""What runs publish, each kind with its view and its parts of the panel, held to reference pictures. `picture_cases`
says how to make those anew."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import memory_samples, scalar_rows
from support.memory_data import pickled
from support.picture_cases import Cases, Stage, play, scene, stage_fixture, stages  # noqa: F401
from support.repetitions import with_exhaustive
from support.training_camera_cases import SIZE as PHOTO
from support.training_camera_cases import ring

import splatview
from splatview import publishing
from splatview.adapt.memory import MemoryForm
from splatview.adapt.scalars import ScalarsForm
from splatview.viewer_app.events import Key
from splatview.viewer_app.views._gaussians.frustums_through import HOWS

CASES = Cases()
pytestmark = pytest.mark.usefixtures("timeline_kernels")


def run(name: str, *shows: str, width: int = 520, height: int = 480):
    """A picture with the panel."""
    return CASES(name, *shows, size=(width, height))


# -- what is published: once each, so that there is no rate --------------------------------------------------------


def publish_scene(**meta: Any) -> None:
    s = scene()
    splatview.publish({name: torch.from_numpy(getattr(s, name)) for name in
                       ("means", "quats", "scales", "opacities", "sh0", "shN")}, "splats", activated=False, step=700,
                      **meta)


def picture() -> np.ndarray:
    """(96, 144, 3) uint8: soft colours, and a bright disc."""
    y, x = np.mgrid[0:96, 0:144]
    disc = (x - 96) ** 2 + (y - 40) ** 2 < 20**2
    smooth = np.stack([60 + x, 40 + y, 160 - x // 2], -1)
    return np.where(disc[..., None], (235, 220, 150), smooth).astype(np.uint8)


def publish_cameras() -> None:
    views, Ks = ring(8, 4.5)
    photo = torch.from_numpy(picture())[None, ::3, ::3].repeat(8, 1, 1, 1).contiguous()
    assert photo.shape[1:3] == PHOTO[::-1]
    splatview.publish_cameras(views, Ks, *PHOTO, photo, current=2)


def publish_as(name: str, form: Any, tensors: tuple[torch.Tensor, ...], meta: dict[str, Any]) -> None:
    """What `splatview.log` and `splatview.publish_memory` publish, with times of its own."""
    publisher = publishing.running()
    assert publisher is not None
    stream = publisher.stream(name, form.kind)
    stream.describe(form)
    stream.publish((tensors, meta))


def publish_scalars() -> None:
    rows = scalar_rows()
    names = torch.tensor([*"".join(f"{name}\0" for name in rows).encode()], dtype=torch.uint8)
    ends = torch.tensor([len(r) for r in rows.values()]).cumsum(0).to(torch.int32)
    publish_as("scalars", ScalarsForm(), (torch.cat([*rows.values()]), ends, names), {"step": 399.0})


def publish_memory() -> None:
    publish_as("memory", MemoryForm(), (memory_samples(),), {
        "device": "cuda:0", "gpu": "A GPU", "total": 24 << 30, "hz": 10.0, "snapshot": "", "snapshots": 0,
        "trouble": ""})


# -- kinds of streams ------------------------------------------------------------------------------------------------


@run("kind-image", "view image")
def _image(stage: Stage) -> None:
    splatview.publish(picture(), "render", step=700)
    stage.select("render")
    stage.parts("View")


@run("kind-image-floating", "view image")
def _floating(stage: Stage) -> None:
    image = np.concatenate([picture() / 100, np.linspace(0, 1, 96 * 144).reshape(96, 144, 1)], -1)
    splatview.publish(image.astype(np.float32), "render")
    stage.select("render")
    stage.parts("View")


@run("kind-image-annotated", "view image", width=760)
def _annotated(stage: Stage) -> None:
    splatview.publish(picture(), "render")
    splatview.annotate("render", boxes=[(70, 14, 122, 66), (10, 30, 50, 90)], labels=["disc", "nothing"],
                       classes=[0, 1],  # colours would go by which labels this process has said before
                       scores=[0.97, 0.31], lines=[[(5, 5), (40, 20), (60, 8)]], notes="a note")
    stage.select("render")
    stage.parts("View")
    layers = stage.view.content.layers
    stage.until(lambda: any(layer.result is not None and not layer.result.empty for layer in layers.all))


@run("kind-cameras", "view cameras")
def _cameras(stage: Stage) -> None:
    publish_cameras()
    stage.select("cameras")
    stage.parts("View")
    content = stage.view.content
    stage.until(lambda: content.drawing._flags[:, 0].all())


@run("kind-scalars", "view scalars", width=760, height=520)
def _scalars(stage: Stage) -> None:
    publish_scalars()
    stage.select("scalars")
    stage.parts("View")


@run("kind-scalars-logarithmic", "view scalars", width=760, height=520)
def _logarithmic(stage: Stage) -> None:
    publish_scalars()
    stage.select("scalars")
    stage.parts("View")
    s = stage.settings
    s.log_up, s.smoothing, s.across, s.columns = True, 0.95, "time", 1


@run("kind-memory", "view memory", width=760)
def _memory(stage: Stage) -> None:
    publish_memory()
    stage.select("memory")
    stage.parts("View")
    stage.settings.host = True


@run("kind-snapshot", "view snapshot", width=760, height=520)
def _snapshot(stage: Stage) -> None:
    path = stage.folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(pickled()))
    stage.open(path)
    stage.parts("View")
    stage.until(lambda: stage.view.complete)


# -- beside a scene ---------------------------------------------------------------------------------------------------


@run("strips", "strip CurveStrip", "strip Strip", "view gaussians")
def _strips(stage: Stage) -> None:
    publish_scene()
    publish_scalars()
    publish_memory()
    stage.select("splats")
    stage.from_afar()
    stage.parts()
    stage.until(lambda: {"strip CurveStrip", "strip Strip"} <= stage.seen())
    assert _curves(stage) == ["loss"]


@run("panel-shards", "part Shards", "view gaussians", height=560)
def _shards(stage: Stage) -> None:
    """One of two ranks: the other one has never come."""
    publish_scene(shard=(0, 2))
    stage.select("splats · 2 shards")
    stage.parts("Shards")


def _curves(stage: Stage) -> list[str]:
    """Of the run: what it logs, and its Gaussians."""
    strips = stage.app.catalogue.companions.strip(stage.seat.shown)
    return [curve.name for part in strips.parts for curve in getattr(part, "curves", ())]


@run("run", "view gaussians")
def _run(stage: Stage) -> None:
    publish_scene()
    stage.select("splats")
    stage.from_afar()
    stage.parts()


@run("run-paused", "view gaussians")
def _paused(stage: Stage) -> str:
    publish_scene()
    stage.select("splats")
    stage.from_afar()
    stage.parts()
    stage.do(Key("space"), Key("space", pressed=False))
    stage.until(lambda: stage.pane.entry.paused)
    threading.Thread(target=splatview.wait_while_paused, daemon=True).start()  # until the viewer is gone
    stage.until(lambda: stage.pane.entry.waits == 2)
    return "toasts"


@run("run-ended", "view gaussians")
def _ended(stage: Stage) -> None:
    publish_scene()
    stage.select("splats")
    stage.from_afar()
    stage.parts()
    splatview.close()
    stage.until(lambda: not stage.pane.entry.alive)


# -- training cameras ----------------------------------------------------------------------------------------------


def _with_cameras(stage: Stage) -> Any:
    publish_scene()
    publish_cameras()
    stage.select("splats")
    stage.from_afar()
    tool = stage.tool("frustums")
    stage.until(lambda: tool.content is not None and tool.content.current == 2
                and tool.content.drawing._flags[:, 0].all())
    return tool


@run("panel-training-cameras", "part Training cameras", "view gaussians", height=520)
def _frustums(stage: Stage) -> None:
    _with_cameras(stage)
    stage.parts("Training cameras")


def _look(stage: Stage, how: str) -> None:
    tool = _with_cameras(stage)
    tool.enter(1, 0.0)
    tool.through.how = how
    stage.seat.mark()
    stage.until(lambda: tool.through.there and tool.through.photo(tool.content) is not None)
    stage.seat.mark()
    if how != "render":
        stage.until(lambda: tool.through.psnr is not None)


for each in HOWS:
    CASES(f"through-{each}", f"through {each}", "bar frustums", size=(400, 320))(
        lambda stage, how=each: _look(stage, how))


@run("panel-through", "part Training cameras", "through photo", "bar frustums", height=520)
def _through(stage: Stage) -> None:
    stage.parts("Training cameras")
    _look(stage, "photo")
    stage.tool("frustums").through.opacity = 0.5


@pytest.mark.parametrize(("name", "case"), with_exhaustive({name: (name, case) for name, case in CASES.items()},
    "kind-image-floating", "kind-scalars-logarithmic", "run", "panel-shards", "through-render", "through-side",
    "through-error", "panel-through"))
def test_it_looks_as_it_did(stage: Stage, name: str, case: object) -> None:
    play(stage, name)
