"""From a frame of a Gaussian stream to the scene that renderers take, and what the view keeps of it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import meta_phrases
from splatview_viewer.geometry.cameras import NEAR, Camera, bounds, frame_points, intrinsics
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, as_floats, sh0_of_rgb
from splatview_viewer.ui.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from splatview_ipc.control.frame import Frame
    from splatview_viewer.core.settings import Color

_MEANT = ("color", "activated", "sh_degree", "antialiased", "trouble")
"""Metadata that steers the drawing, or is said over the picture."""
_VISIBLE = 0.05
"""Gaussians of at most this opacity do not count when a scene is framed."""
_SAMPLE = 200_000
"""Gaussians that are looked at to frame a scene."""
_SAMPLE_LATER = 50_000
"""The same, of later versions on a GPU."""


def scene_of(frame: Frame, choices: Collection[str] = ()) -> GaussianScene:
    """Copies in host memory of everything in the frame, float32, means also float64. `choices`: of hints that were
    obeyed (`hint_of`). Ask `frame.intact()` afterwards: until then it may be torn. Raises ViewerError for unknown
    colours, SharingError when GPU memory cannot be read."""
    tensors: dict[str, Any] = {name: t.to_floats() if name == "means" else t.to_float32()
                               for name, t in frame.tensors.items() if name != "background"}
    if (color := _color(frame)) != "sh":
        rgb = tensors["rgb"]
        if color == "rgb_logit":
            with np.errstate(over="ignore"):
                rgb = 1.0 / (1.0 + np.exp(-rgb))
        tensors["sh0"], tensors["shN"] = sh0_of_rgb(rgb), None
    if tensors.get("shN") is None:
        tensors["shN"] = np.empty((len(tensors["means"]), 0, 3), np.float32)
    if "quats" in choices:
        tensors["quats"] = np.roll(tensors["quats"], 1, 1)
    return _scene(frame, tensors, choices)


def device_scene_of(frame: Frame, choices: Collection[str] = ()) -> tuple[GaussianScene, Callable[[int], None]]:
    """CUDA tensors over the frame's own memory, valid while it is held, and `ready(stream)`, after which a CUDA stream
    finds their data there.

    That stream also converts what has to be converted, then: the GPU is given nothing before. Errors as for `scene_of`.
    """
    import torch

    ready: Callable[[int], None] = frame.wait

    tensors: dict[str, Any] = {name: t.torch() for name, t in frame.tensors.items()  # type: ignore[union-attr]
                               if name != "background"}
    device = tensors["means"].device
    sh0 = quats = rolled = None
    if "quats" in choices:
        tensors["quats"] = rolled = torch.empty_like(quats := tensors["quats"].detach())
    if (color := _color(frame)) != "sh":
        tensors["shN"] = None
        sh0 = tensors["sh0"] = torch.empty(tensors["rgb"].shape, device=device)
    if sh0 is not None or rolled is not None:

        def convert(stream: int) -> None:
            frame.wait(stream)
            with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(stream, device)):
                if quats is not None and rolled is not None:
                    rolled.copy_(quats.roll(1, 1))
                if sh0 is not None:
                    sh0.copy_(tensors["rgb"])
                    if color == "rgb_logit":
                        sh0.sigmoid_()
                    sh0.sub_(0.5).div_(SH_C0)

        ready = convert
    if tensors.get("shN") is None:
        tensors["shN"] = _no_sh(len(tensors["means"]), device)
    return _scene(frame, tensors, choices), ready


@functools.lru_cache(maxsize=4)
def _no_sh(count: int, device: Any) -> Any:
    """The same tensor without elements again, by which a renderer sees that nothing moved."""
    import torch

    return torch.empty((count, 0, 3), device=device)


def _color(frame: Frame) -> str:
    color = frame.meta.get("color")
    if color not in ("sh", "rgb", "rgb_logit"):
        raise ViewerError(f"gaussians: color is {color!r}, not 'sh', 'rgb' or 'rgb_logit'")
    return str(color)


def _scene(frame: Frame, tensors: dict[str, Any], choices: Collection[str]) -> GaussianScene:
    meta = frame.meta
    return GaussianScene(
        tensors["means"], tensors["quats"], tensors["scales"], tensors["opacities"], tensors["sh0"], tensors["shN"],
        activated=bool(meta.get("activated")) != ("activated" in choices),
        sh_degree=int(meta.get("sh_degree", 0)) if _color(frame) == "sh" else 0,
        antialiased=bool(meta.get("antialiased")),
        version=frame.version,
        notes=tuple(meta_phrases(meta, _MEANT)),
        shards=getattr(frame, "shards", ()),
    )


def background_of(frame: Frame) -> Color | None:
    """The background colour that travels with a stream. Waits for the GPU where it lies on one."""
    tensor = frame.tensors.get("background")
    if tensor is None:
        return None
    values = np.nan_to_num(tensor.to_float32()).clip(0, 1)
    return float(values[0]), float(values[1]), float(values[2])


def hint_of(scene: GaussianScene, ready: Callable[[int], None] | None) -> Hint | None:
    """What some of a scene's Gaussians look like, unless it is what their publisher says. `ready`: as for
    `GaussianScene.to_host`; waits for the GPU."""
    step = max(len(scene) // 10_000, 1)
    fields = {name: getattr(scene, name)[::step] for name in FIELDS[:-1]}
    some = replace(scene, **fields, shN=scene.shN[:0]).to_host(ready)  # without harmonics, most of what there is
    scales, opacities, quats = (np.asarray(a, np.float64) for a in (some.scales, some.opacities, some.quats))
    if len(some) < 10:
        return None
    if some.activated and (scales < 0).mean() > 0.1:
        return Hint("activated", "scales look like logarithms", "Show as logarithms")
    shares = (scales > 0).mean(), ((opacities >= 0) & (opacities <= 1)).mean()
    if not some.activated and min(shares) > 0.99 and (opacities > 0.02).any():
        return Hint("activated", "scales and opacities look activated", "Show as activated")
    quats = np.abs(quats[np.isfinite(quats).all(1) & quats.any(1)])
    w, *_, z = (quats / np.linalg.norm(quats, axis=1, keepdims=True)).sum(0) / max(len(quats), 1)
    return Hint("quats", "quaternions look like x y z w", "Show as x y z w") if z > max(0.6, 2 * w) else None


@dataclass(frozen=True)
class Facts:
    """What is said about the scene that is shown; its arrays may be gone by now."""

    count: int
    sh_degree: int
    stored_sh_degree: int
    antialiased: bool
    notes: tuple[str, ...]
    shards: tuple[tuple[int, int], ...] = ()
    up: tuple[float, float, float] | None = None

    @classmethod
    def of(cls, scene: GaussianScene) -> Facts:
        return cls(len(scene), scene.sh_degree, scene.stored_sh_degree, scene.antialiased, scene.notes, scene.shards,
                   scene.up)

    def shard_of(self, index: int) -> tuple[int, int] | None:
        """Which rank's a Gaussian is, and the which of its; None: of a scene that is not in parts."""
        for rank, count in self.shards:
            if index < count:
                return rank, index
            index -= count
        return None

    @property
    def phrases(self) -> list[str]:
        degrees = f"SH {min(self.sh_degree, self.stored_sh_degree)} of {self.stored_sh_degree}"
        return [*([degrees] if self.stored_sh_degree else []), *(["antialiased"] if self.antialiased else [])]


@dataclass(frozen=True)
class Sight:
    """What is kept of a scene to frame it: some of its Gaussians, evenly spread over the arrays."""

    means: np.ndarray
    """(M, 3) float32, or float64 as the scene's."""
    opacities: np.ndarray
    """(M,) float32 in [0, 1]."""

    @classmethod
    def of(cls, scene: GaussianScene, ready: Callable[[int], None] | None = None) -> Sight:
        """`ready` as for `GaussianScene.to_host`. Waits for the GPU where the scene lies on one."""
        if scene.on_gpu:
            _prepare_pinned(len(scene))
        means, opacities = scene.sample(_SAMPLE, ready)
        return cls(np.array(means), np.array(opacities, np.float32))

    @classmethod
    def later(cls, scene: GaussianScene, ready: Callable[[int], None]) -> Callable[[], Sight | None]:
        """As `of` for a scene on a GPU, but waits for nothing: what is returned gives it, once it has come.

        Reads the scene on torch's current stream, from the first time on that it is asked.
        """
        import torch

        started: list[Any] = []

        def begin() -> None:
            with torch.no_grad(), torch.cuda.device(scene.gpu):
                ready(torch.cuda.current_stream().cuda_stream)
                step = _step(len(scene))
                means, opacities = (as_floats(t[::step]) for t in (scene.means, scene.opacities))
                opacities = opacities if scene.activated else opacities.sigmoid()
                copies = [t.to("cpu", non_blocking=True) for t in (means, opacities)]  # into pinned memory
                started.extend((*copies, torch.cuda.current_stream().record_event()))

        def ask() -> Sight | None:
            if not started:
                begin()
                return None
            means, opacities, done = started
            return cls(means.numpy().copy(), opacities.numpy().copy()) if done.query() else None

        return ask

    @property
    def weights(self) -> np.ndarray | None:
        """(M,) opacities, 0 for what can hardly be seen; None when nothing can."""
        weights = np.where(self.opacities > _VISIBLE, self.opacities, 0.0)  # NaN counts as invisible
        return weights if weights.any() else None

    @functools.cached_property
    def center(self) -> np.ndarray:
        """(3,) the middle of all of it, whether it can be seen or not."""
        return bounds(self.means)[0]

    @functools.cached_property
    def bounds(self) -> tuple[np.ndarray, float]:
        """The middle (3,) of what can be seen, and its radius."""
        return bounds(self.means, self.weights)

    def near_of(self, camera: Camera) -> Camera:
        """A camera whose near plane is gsplat's default, with one that fits a scene smaller than a unit."""
        return replace(camera, near=self._near) if self._near < camera.near == NEAR else camera

    @functools.cached_property
    def _near(self) -> float:
        few = slice(None, None, len(self.means) // 5000 + 1)  # each version of a stream is asked
        return min(NEAR, NEAR * bounds(self.means[few])[1])

    @property
    def middle(self) -> np.ndarray:
        """(3,) the middle of what can be seen."""
        return self.bounds[0]

    def camera(self, width: int, height: int, up: Any) -> Camera:
        """The camera from which the scene is seen whole, in the middle of the picture.

        Starts from `frame_points`, whose direction it keeps, and corrects it by where the visible Gaussians come to
        lie in the picture. Floaters, the outer hundredth on each side, do not count, and it never moves far.
        """
        return self._filled(frame_points(self.means, width, height, weights=self.weights, up=up))

    def seen_along(self, rotation: np.ndarray, fov: float, width: int, height: int) -> Camera:
        """As `camera`, but in the direction in which another one looks: `rotation` (3, 3) is its world to camera, `fov`
        its vertical angle in degrees."""
        center, radius = self.bounds
        half = math.radians(fov) / 2
        half = min(half, math.atan(math.tan(half) * width / height))
        distance = radius / math.sin(half)
        viewmat = np.eye(4)
        viewmat[:3, :3] = rotation
        viewmat[:3, 3] = [0, 0, distance] - rotation @ center
        return self._filled(Camera(viewmat, intrinsics(fov, width, height), width, height,
                                   near=min(NEAR, distance * NEAR)))

    def _filled(self, camera: Camera) -> Camera:
        """Another place for a pinhole camera, from where the visible Gaussians fill its picture."""
        weights, width, height = self.weights, camera.width, camera.height
        means = self.means if weights is None else self.means[weights > 0]
        means = means[np.isfinite(means).all(axis=1)]
        means = means[:: max(len(means) // 50_000, 1)].astype(np.float64)
        focal, viewmat = camera.K[0, 0], camera.viewmat
        for _ in range(2):  # the correction is exact for a flat scene; the second turn takes in depth
            p = means @ viewmat[:3, :3].T + viewmat[:3, 3]
            p = p[p[:, 2] > camera.near]
            if len(p) < 2:
                break
            distance = float(np.median(p[:, 2]))
            low, high = np.percentile(p[:, :2] / p[:, 2:], (1, 99), axis=0)
            room = np.array([width, height]) / focal * 0.84
            nearer = float(np.clip(((high - low) / room).max(), 0.7, 1.6))
            shift = np.array([*((low + high) / 2 * distance), distance * (1 - nearer)])
            viewmat = viewmat.copy()
            viewmat[:3, 3] -= shift
        return replace(camera, viewmat=viewmat)


def _step(count: int) -> int:
    """So that every so many of the Gaussians are a sample of at most _SAMPLE_LATER."""
    return max(-(-count // _SAMPLE_LATER), 1)


def _prepare_pinned(count: int) -> None:
    """Have torch keep the pinned memory that `Sight.later` takes: to get it from the driver takes milliseconds."""
    import torch

    if torch.cuda.is_initialized():
        for width in (3, 1):
            torch.empty(len(range(0, count, _step(count))) * width, pin_memory=True)
