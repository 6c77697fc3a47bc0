"""From a frame of a Gaussian stream to the scene that renderers take."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.kinds.gaussians import Activated, activated_of
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import meta_phrases
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor
    from splatview_viewer.core.settings import Color

_MEANT = ("color", "activated", "sh_degree", "antialiased", "trouble")
"""Metadata that steers the drawing, or is said over the picture."""


@dataclass(frozen=True)
class JoinedTensor:
    """Shape and dtype of tensors of several ranks, one behind the other."""

    dtype: str
    """"float64" if one of them is that, else "float32"."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, parts: Sequence[RemoteTensor | DeviceTensor]) -> JoinedTensor:
        """Join at least one; where one holds fewer coefficients, the others decide."""
        extents = (
            max(sizes)
            for sizes in zip(*(part.shape[1:] for part in parts), strict=True)
        )
        return cls(
            "float64" if any(part.dtype == "float64" for part in parts) else "float32",
            (sum(part.shape[0] for part in parts), *extents),
        )


@dataclass
class JoinedFrame(StreamFrame):
    """The newest frames of several ranks as one frame: their Gaussians one behind the other, rank by rank.

    Of its tensors only dtype and shape are known; `scene_of` joins those of the parts.
    """

    parts: Sequence[StreamFrame] = ()
    shards: tuple[tuple[int, int], ...] = ()
    """Rank and number of Gaussians of each part."""
    kept: list[object] = field(default_factory=list, repr=False)
    """Tensors that a GPU may read until the frame is closed."""

    @property
    def on_gpu(self) -> bool:
        """True if all parts are on GPUs."""
        return all(part.on_gpu for part in self.parts)

    @property
    def complete(self) -> bool:
        """As `Frame.complete`."""
        return all(part.complete for part in self.parts)


Ready = Callable[[int], None]
"""`ready(stream)`: work given to a CUDA stream afterwards, by its raw handle, finds a scene's data."""


def scene_of(
    frame: StreamFrame, choices: Collection[str] = (), *, in_place: bool = False
) -> tuple[GaussianScene, Ready | None]:
    """Return the scene of a frame, and for `in_place` what has to be called before it is read.

    Copies on the CPU of everything in the frame, float32, means also float64. Ask `frame.intact()` afterwards: until
    then it may be torn.

    `in_place`, for a frame on a GPU: tensors over the frame's own memory, valid while it is held. The stream given to
    `ready` also converts what has to be converted and joins what has to be joined; the GPU is given nothing before.

    `choices`: of hints that were obeyed (`hint_of`). Raises ViewerError for unknown colours, SharingError when GPU
    memory cannot be read.
    """
    if isinstance(frame, JoinedFrame):
        return _joined(
            frame, [scene_of(part, choices, in_place=in_place) for part in frame.parts]
        )
    import torch

    color = frame.meta.get("color")
    if color not in ("sh", "rgb", "rgb_logit"):
        raise ViewerError(
            f"gaussians: color is {color!r}, not 'sh', 'rgb' or 'rgb_logit'"
        )
    given: dict[str, torch.Tensor] = {
        name: t.torch().detach() if in_place else torch.from_numpy(t.to_floats())  # type: ignore[union-attr]
        for name, t in frame.tensors.items()
        if name != "background"
    }
    given.update(
        (name, t.float())
        for name, t in given.items()
        if not in_place and name != "means"
    )
    tensors = dict(given)
    activated = activated_of(frame.meta.get("activated", False))
    if "activated" in choices:
        activated = Activated(not activated.scales, not activated.scales)
    if "opacities" in choices:
        activated = activated._replace(opacities=not activated.opacities)
    steps: list[Callable[[], None]] = []
    if color != "sh":
        tensors["sh0"] = torch.empty(given["rgb"].shape, device=given["rgb"].device)
        steps.append(lambda: _to_harmonics(tensors["sh0"], given["rgb"], color))
    if "quats" in choices:
        tensors["quats"] = torch.empty_like(given["quats"])
        steps.append(lambda: _roll(tensors["quats"], given["quats"]))
    if color != "sh" or "shN" not in given:
        tensors["shN"] = _no_sh(len(given["means"]), given["means"].device)
    if "filter_3D" in given:
        steps.append(_filtered(given, tensors, activated))
        activated = Activated(True, True)
    elif given["scales"].shape[1] == 2:
        steps.append(_flat(given, tensors, activated))

    def convert() -> None:
        for step in steps:
            step()

    def ready(stream: int) -> None:
        frame.wait(stream)
        if steps:
            with (
                torch.no_grad(),
                torch.cuda.stream(
                    torch.cuda.ExternalStream(stream, given["means"].device)
                ),
            ):
                convert()

    if not in_place:
        convert()
    meta = frame.meta
    return GaussianScene(
        *(tensors[name] for name in FIELDS),
        activated=activated.scales
        if activated.scales == activated.opacities
        else activated,
        sh_degree=int(meta.get("sh_degree", 0)) if color == "sh" else 0,
        antialiased=bool(meta.get("antialiased")),
        version=frame.version,
        notes=tuple(meta_phrases(meta, _MEANT)),
    ), ready if in_place else None


def activated_in(frame: StreamFrame) -> Activated:
    """Return whether the scales and the opacities of a frame's scene are activated."""
    if "filter_3D" in frame.tensors:
        return Activated(True, True)
    return activated_of(frame.meta.get("activated", False))


def _to_harmonics(sh0: torch.Tensor, rgb: torch.Tensor, color: str) -> None:
    """Fill `sh0` with the coefficients of degree 0 of colours, or of their logits."""
    # Another stream may read them meanwhile: they are overwritten once, by what they are.
    values = rgb.float().sigmoid() if color == "rgb_logit" else rgb.float()
    sh0.copy_((values - 0.5) / SH_C0)


def _roll(quats: torch.Tensor, xyzw: torch.Tensor) -> None:
    """Fill `quats` with quaternions whose last component is w."""
    quats.copy_(xyzw.roll(1, 1))


def _flat(
    given: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], act: Activated
) -> Callable[[], None]:
    """Make room for three scales of flat Gaussians; return what fills it from the two that are given."""
    pair = given["scales"]
    scales = pair.new_empty(len(pair), 3)
    tensors["scales"] = scales

    def fill() -> None:
        scales[:, :2].copy_(pair)
        scales[:, 2] = 0.0 if act.scales else -math.inf

    return fill


def _filtered(
    given: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], act: Activated
) -> Callable[[], None]:
    """Make room for scales and opacities behind mip-splatting's 3D filter; return what fills it.

    Two scales are filtered as two: the Gaussian stays flat.
    """
    import torch

    stored = given["scales"]
    options = {"dtype": torch.float32, "device": stored.device}
    scales = torch.empty(len(stored), 3, **options)
    tensors["scales"] = scales
    opacities = torch.empty(len(stored), **options)
    tensors["opacities"] = opacities

    def fill() -> None:
        before = stored.float() if act.scales else stored.float().exp()
        after = before.hypot(given["filter_3D"].float()[:, None])
        shrinking = torch.where(after > 0, before / after, 1.0).prod(1)
        values = given["opacities"].float()
        if not act.opacities:
            values = values.sigmoid()
        missing = 3 - after.shape[1]
        # Another stream may read them meanwhile, after an earlier call.
        scales.copy_(torch.nn.functional.pad(after, (0, missing)))
        opacities.copy_(values * shrinking)

    return fill


def _joined(
    frame: JoinedFrame, parts: Sequence[tuple[GaussianScene, Ready | None]]
) -> tuple[GaussianScene, Ready | None]:
    """One scene of the scenes of a frame's parts, on the device of the first one."""
    import torch

    scenes = [scene for scene, _ in parts]
    first = scenes[0]
    coefficients = max(scene.shN.shape[1] for scene in scenes)
    means = next(
        (scene.means for scene in scenes if scene.means.dtype.itemsize == 8),
        torch.empty(0),
    )
    rows = sum(map(len, scenes))
    device = first.means.device
    out = [
        torch.empty(
            rows,
            *shape,
            dtype=means.dtype if name == "means" else torch.float32,
            device=device,
        )
        for name, shape in zip(
            FIELDS, ((3,), (4,), (3,), (), (3,), (coefficients, 3)), strict=True
        )
    ]
    whole = replace(
        first,
        **dict(zip(FIELDS, out, strict=True)),
        version=frame.version,
        sh_degree=max(scene.sh_degree for scene in scenes),
        notes=tuple(meta_phrases(frame.meta, _MEANT)),
    )

    def fill() -> None:
        whole.shN.zero_()  # a part may hold fewer coefficients
        begin = 0
        for scene in scenes:
            to = whole[begin : begin + len(scene)]
            to = replace(to, shN=to.shN[:, : scene.shN.shape[1]])
            for name in FIELDS:
                target = getattr(to, name)
                target.copy_(
                    getattr(scene, name).reshape(target.shape), non_blocking=True
                )
            begin += len(scene)

    done: list[Any] = []

    def ready(stream: int) -> None:
        """The first stream joins; others wait for it."""
        here = torch.cuda.ExternalStream(stream, device)
        if done:
            here.wait_event(done[0])
            return
        with torch.no_grad(), torch.cuda.stream(here):
            for scene, wait in parts:
                if scene.gpu == device:
                    there = here
                else:
                    there = torch.cuda.current_stream(scene.gpu)
                wait(there.cuda_stream)  # type: ignore[misc]
            fill()
            done.append(here.record_event())

    if parts[0][1] is None:
        fill()
        return whole, None
    frame.kept.append(parts)
    return whole, ready


@functools.lru_cache(maxsize=4)
def _no_sh(count: int, device: torch.device) -> torch.Tensor:
    """The same tensor without elements again, by which a renderer sees that nothing moved."""
    import torch

    return torch.empty((count, 0, 3), device=device)


def background_of(frame: StreamFrame) -> Color | None:
    """The background colour that travels with a stream. Waits for the GPU where it lies on one."""
    tensor = frame.tensors.get("background")
    if tensor is None:
        return None
    values = np.nan_to_num(tensor.to_float32()).clip(0, 1)
    return float(values[0]), float(values[1]), float(values[2])
