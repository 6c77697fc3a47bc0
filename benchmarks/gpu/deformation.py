"""Gaussians that a network moves with time: the training, and functions that draw them.

As in `examples/functions/deformation.py`. `picture` is a render function outside the
training, of `publish(..., render="benchmarks.gpu.deformation:picture")`; inside, and in
nerfview, the same `draw_at` is called.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from benchmarks.gpu.load import Training
from benchmarks.gpu.scenes import SIZE, ball
from splatview.demo.rasterizer import draw
from splatview.demo.views import DatasetView

if TYPE_CHECKING:
    from collections.abc import Mapping

PICTURE = "benchmarks.gpu.deformation:picture"
STAMPED_PICTURE = "benchmarks.gpu.deformation:stamped_picture"
MODULE = "benchmarks.gpu.deformation:empty_scene"
TIME = 0.5
"""The time that is drawn where no control says another."""
STAMP_BYTES = 8
"""Bytes of a time in the first pixels of a picture."""
_STEPS_A_ROUND = 100
"""Steps of the training in which its time goes from 0 to 1."""
_pictures = itertools.count()


class RenderedPicture(NamedTuple):
    """The result of a render function."""

    rgb: torch.Tensor
    """(H, W, 3) float."""
    depth: torch.Tensor | None
    """(H, W) float, camera z."""
    alpha: torch.Tensor | None
    """(H, W) float."""


class DeformedScene(torch.nn.Module):
    """Gaussians that a network moves with time, from 0 to 1."""

    def __init__(self, gaussians: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.gaussians = torch.nn.ParameterDict(dict(gaussians))
        self.deformation = torch.nn.Sequential(
            torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)
        )

    def deformed(self, scene_time: float) -> dict[str, torch.Tensor]:
        """Return the Gaussians at a time."""
        means = self.gaussians["means"]
        inputs = torch.cat([means, torch.full_like(means[:, :1], scene_time)], dim=1)
        return {**self.gaussians, "means": means + self.deformation(inputs)}


def empty_scene() -> DeformedScene:
    """Return a scene whose tensors the trainer's take the place of."""
    return DeformedScene(ball(1, "cpu"))


class DeformedTraining(Training):
    """The training of `load`, with the network between Gaussians and picture."""

    def __init__(
        self,
        n: int = 1_000_000,
        size: tuple[int, int] = SIZE,
        device: str = "cuda",
    ) -> None:
        super().__init__(n, size, device)
        self.module = DeformedScene(self.scene).to(device)
        network = {"params": list(self.module.deformation.parameters())}
        self._optimizer.add_param_group(network)

    def draw(self, view: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
        scene_time = self.steps % _STEPS_A_ROUND / _STEPS_A_ROUND
        return draw_at(self.module, scene_time, DatasetView(view, K, *self.size)).rgb


def draw_at(
    scene: DeformedScene, scene_time: float, view: DatasetView
) -> RenderedPicture:
    """Return the picture of the scene at a time, with gradients where they are on."""
    gaussians = scene.deformed(scene_time)
    # The rasterizer in plain torch has no harmonics of a higher degree.
    sh_degree = 3 if gaussians["means"].is_cuda else 1
    drawn = draw(gaussians, view, sh_degree)
    depth = drawn.depth / drawn.alpha.clamp_min(1e-6)
    return RenderedPicture(drawn.image, depth, drawn.alpha)


def picture(
    scene: DeformedScene, camera: Any, controls: Mapping[str, Any]
) -> RenderedPicture:
    """Draw what a viewer sees: a render function."""
    view = DatasetView(camera.viewmat, camera.K, camera.width, camera.height)
    return draw_at(scene, controls.get("time", TIME), view)


def stamped_picture(
    scene: DeformedScene, camera: Any, controls: Mapping[str, Any]
) -> RenderedPicture:
    """Draw the same, with the time at which it was whole in its first pixels.

    Every second picture has neither depth nor alpha.
    """
    rgb, depth, alpha = picture(scene, camera, controls)
    # Depth and alpha may be views of the same memory.
    rgb = rgb.clone(memory_format=torch.contiguous_format)
    if rgb.is_cuda:
        torch.cuda.current_stream(rgb.device).synchronize()
    stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "little")
    levels = torch.tensor(list(stamp), dtype=torch.float32) / 255
    rgb.view(-1)[:STAMP_BYTES] = levels.to(rgb.device)
    if next(_pictures) % 2:
        return RenderedPicture(rgb, None, None)
    return RenderedPicture(rgb, depth, alpha)


def stamp_of(pixels: Any) -> int:
    """Return the time in nanoseconds in the first pixels (H, W, 3 or 4) of a picture."""
    channels = pixels[0, :STAMP_BYTES, :3].ravel()
    return int.from_bytes(channels[:STAMP_BYTES].tobytes(), "little")
