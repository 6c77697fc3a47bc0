"""What the tests of the viewer on a GPU share: trainers, viewers that follow them, what they must show."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.app.loop import step
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import ShownView
from splatview_viewer.formats.pictures import save_picture
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen
from support.programs import Programs
from support.view_cases import scene_view, see
from support.wait import PATIENCE

if TYPE_CHECKING:
    from support.viewer import Viewer

PATTERN = """
import torch
H, W = 48, 64
FORMS = [(d, s) for d in ("uint8", "float16", "bfloat16", "float32") for s in ("HWC", "CHW")]
FORMS += [("uint8", "HW"), ("uint8", "RGBA"), ("float32", "HW")]

def pattern(k, dtype, sort):
    channels = {"HWC": 3, "CHW": 3, "HW": 1, "RGBA": 4}[sort]
    y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    values = torch.stack([(x * 4 + y * 3 * (c + 1) + 37 * k + 50 * c) % 256 for c in range(channels)], -1)
    t = values.to(torch.uint8) if dtype == "uint8" else (values / 255).to(getattr(torch, dtype))
    return {"HW": t[..., 0], "CHW": t.permute(2, 0, 1)}.get(sort, t).contiguous()

def scene(k):
    g = torch.Generator().manual_seed(k)
    n = 1500 + 700 * k
    means = torch.randn(n, 3, generator=g)
    means = means / means.norm(dim=1, keepdim=True)
    return {"means": means, "quats": torch.randn(n, 4, generator=g), "scales": torch.full((n, 3), -2.6),
            "opacities": 1.0 + torch.rand(n, generator=g), "sh0": torch.rand(n, 1, 3, generator=g) * 2 - 1,
            "shN": torch.randn(n, 3, 3, generator=g) * 0.1}
"""
"""What trainers publish and tests expect: `pattern(k, dtype, sort)` and `scene(k)`, on the CPU."""

TRAINER = PATTERN + """
import select, sys, time, splatview
images = {(d, s): pattern(0, d, s).cuda() for d, s in FORMS}
splats = {n: t.cuda() for n, t in scene(0).items()}
k = 0
print("ready", flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        k += 1
        for (d, s), t in images.items():
            t.copy_(pattern(k, d, s))
        splats = {n: t.cuda() for n, t in scene(k).items()}  # a densification: other storages, more Gaussians
    for (d, s), t in images.items():
        splatview.publish(t, f"in-place {d} {s}", copy=False, step=k)
        splatview.publish(t.clone(), f"ring {d} {s}", copy=True, step=k)
    splatview.publish(splats, "splats", step=k, sh_degree=1)
    time.sleep(0.01)
"""
"""Publishes every form of image in both ways, and a scene, until its input ends. A line of input: the next k."""

NAMES: dict[str, Any] = {}
exec(PATTERN, NAMES)  # the trainer's own words
H, W, FORMS = NAMES["H"], NAMES["W"], NAMES["FORMS"]
BRIDGES = ("direct", "import", "host")
CAMERA = Camera(look_at((0, -1, -4), (0, 0, 0)), intrinsics(50, 320, 240), 320, 240)


class Trainer:
    """A training process, and which pattern it shows."""

    def __init__(self, folder: Path, allocator: str):
        (folder / "runtime").mkdir(mode=0o700)
        self.runtime = folder / "runtime"
        self.k = 0
        self._programs = Programs(folder)
        self.process = self._programs.code(TRAINER, PYTORCH_CUDA_ALLOC_CONF=allocator, SPLATVIEW_STRICT="1",
                                            SPLATVIEW_RUNTIME_DIR=str(self.runtime))
        assert self.process.line() == "ready", f"the trainer failed: {self.last_words()}"

    def last_words(self) -> str:
        self.process.kill()
        return "".join(self.process.communicate(timeout=PATIENCE))[-3000:]

    def next(self) -> None:
        self.k += 1
        self.process.say("next")

    def alive(self) -> None:
        assert self.process.poll() is None, f"the trainer ended: {self.last_words()}"

    def close(self) -> None:
        self._programs.close()


def about(viewer: Viewer) -> str:
    slot = viewer.user.shown
    if slot is None:
        return f"nothing is shown; there are {[e.name for e in viewer.state.entries]}"
    view = slot.view
    return (f"{slot.entry.name}: {slot.source.path}, notes {slot.source.notes}, fault {slot.entry.fault!r} "
            f"{slot.entry.fault_of_source!r}, "
            + (f"{view.info}, stale {view.wants.stale}" if view else "no view"))


def select(viewer: Viewer, trainer: Trainer, name: str) -> None:
    end = time.monotonic() + PATIENCE
    while not any(e.name == name for e in viewer.state.entries):
        step(viewer)
        trainer.alive()
        assert time.monotonic() < end, f"no stream {name!r} within 30 s; there are {viewer.state.entries}"
    slot = next(s for s in viewer.catalogue.slots.values() if s.entry.name == name)
    viewer.user.select(slot.entry.key)


def expected_image(k: int, dtype: str, sort: str) -> np.ndarray:
    t = NAMES["pattern"](k, dtype, sort)
    t = t.permute(1, 2, 0) if sort == "CHW" else t
    values = t.numpy() if dtype == "uint8" else (t.float() * 255).round().int().numpy()
    values = values.astype(int)
    return np.repeat(values[..., None], 3, axis=2) if values.ndim == 2 else values[..., :3]


def wait_for(viewer: Viewer, trainer: Trainer, want: np.ndarray, rect: Rect | None = None) -> None:
    """Until the picture is this, to one in 255."""
    end, worst = time.monotonic() + PATIENCE, -1
    while time.monotonic() < end:
        step(viewer)
        if (image := viewer.shows(ImageView)) is not None and image.state.alpha != "ignore":
            see(viewer.user.view, alpha="ignore")
            viewer.user.mark()
        pixels = viewer.pixels()
        if rect is not None:
            pixels = pixels[rect.y:rect.y + rect.height, rect.x:rect.x + rect.width]
        assert pixels.shape == want.shape
        worst = int(np.abs(pixels - want).max())
        if worst <= 1:
            return
    trainer.alive()
    raise AssertionError(f"off by up to {worst} of 255 after 20 s. {about(viewer)}")


def keep(viewer: Viewer, name: str) -> None:
    """Save the picture where the environment says, to be looked at."""
    if folder := os.environ.get("SPLATVIEW_TEST_PICTURES"):
        viewer.user.mark(3)
        viewer.do()
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_picture(viewer.screen.pixels()[..., :3], Path(folder) / f"{name}.png")


def expected_scene(k: int, show: str = "color") -> np.ndarray:
    """(240, 320, 3) as OpenGL draws the same numbers from host memory. Before a viewer is opened: it lets go of the
    thread's OpenGL context."""
    from splatview_viewer.render.gl.renderer import GlRenderer

    t = NAMES["scene"](k)
    scene = GaussianScene(t["means"], t["quats"], t["scales"], t["opacities"], t["sh0"][:, 0], t["shN"], sh_degree=1)
    screen = OffscreenScreen(320, 240)
    view = scene_view(screen, GlRenderer(screen.ctx), show=show)
    try:
        view.update(scene)
        view.view.use_camera(CAMERA)
        view.draw(screen.framebuffer, Rect(0, 0, 320, 240))
        return screen.pixels()[..., :3].astype(int)
    finally:
        view.close()
        screen.close()


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(((a - b) ** 2).mean() / 255**2 + 1e-12))


def wait_for_scene(viewer: Viewer, trainer: Trainer, want: np.ndarray, least: float = 36.0) -> Any:
    end, best, view = time.monotonic() + PATIENCE, 0.0, None
    while time.monotonic() < end:
        step(viewer)
        slot = viewer.user.shown
        view = slot.view if slot is not None else None
        if not isinstance(view, ShownView) or view.empty:
            continue
        scene: Any = view.view
        if not scene.fixed:
            scene.use_camera(CAMERA)
            viewer.user.mark()
            continue
        best = max(best, psnr(viewer.pixels(), want))
        if best > least:
            return view
    trainer.alive()
    raise AssertionError(f"{best:.1f} dB after 30 s. {about(viewer)}")
