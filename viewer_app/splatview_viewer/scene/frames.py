"""From a frame of a Gaussian stream to the scene that renderers take."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.cuda import driver
from splatview_ipc.kinds.gaussians import Activated, parse_activated
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import meta_phrases
from splatview_viewer.scene.scene import FIELDS, SH_C0, GaussianScene, row_shapes

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor
    from splatview_viewer.core.settings import Color

_KNOWN_META = ("color", "activated", "sh_degree", "antialiased", "trouble")
"""Metadata that steers the drawing, or is shown over the picture."""

Ready = Callable[[int], None]
"""`ready(stream)`: work given to a CUDA stream afterwards, by its raw handle, finds a
scene's data."""


@dataclass(frozen=True)
class JoinedTensor:
    """Shape and dtype of tensors of several ranks, one after the other."""

    dtype: str
    """"float64" if one of them is that, else "float32"."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensors: Sequence[RemoteTensor | DeviceTensor]) -> JoinedTensor:
        """Join at least one; where one holds fewer coefficients, the others decide."""
        dtype = "float32"
        if any(tensor.dtype == "float64" for tensor in tensors):
            dtype = "float64"
        row_count = sum(tensor.shape[0] for tensor in tensors)
        shapes = [tensor.shape[1:] for tensor in tensors]
        row_shape = map(max, zip(*shapes, strict=True))
        return cls(dtype, (row_count, *row_shape))


@dataclass
class JoinedFrame(StreamFrame):
    """The newest frames of several ranks as one frame.

    Their Gaussians lie one after the other, rank by rank. Of its tensors only dtype and
    shape are known; `scene_of` joins those of the ranks' frames.
    """

    frames: Sequence[StreamFrame] = ()
    shards: tuple[tuple[int, int], ...] = ()
    """Rank and number of Gaussians of each frame."""
    pinned: list[object] = field(default_factory=list, repr=False)
    """Tensors that a GPU may read until the frame is closed."""

    @property
    def on_gpu(self) -> bool:
        """True if all frames are on GPUs."""
        return all(frame.on_gpu for frame in self.frames)

    @property
    def complete(self) -> bool:
        """True if all data of all frames is there."""
        return all(frame.complete for frame in self.frames)


def scene_of(
    frame: StreamFrame, choices: Collection[str] = (), *, in_place: bool = False
) -> tuple[GaussianScene, Ready | None]:
    """Return the scene of a frame, and a function to be called before it is read.

    The scene is a copy on the CPU of everything in the frame, float32, means also
    float64; the function is None. Ask `frame.intact()` afterwards: until then it may be
    torn.

    Args:
        frame: the frame.
        choices: names of the hints that the user has followed: "activated", "opacities",
            "quats".
        in_place: for a frame on a GPU: the scene's tensors lie over the frame's own
            memory, valid while it is held. The stream given to the function also converts
            and joins what has to be; the GPU is given nothing before.

    Raises:
        ViewerError: the colours are unknown.
        SharingError: GPU memory cannot be read.
    """
    if isinstance(frame, JoinedFrame):
        prepared = []
        for rank_frame in frame.frames:
            prepared.append(scene_of(rank_frame, choices, in_place=in_place))
        return _join_scenes(frame, prepared)
    conversion = _Conversion(frame, choices, in_place)
    if in_place:
        return conversion.scene(), conversion.ready
    conversion.run()
    return conversion.scene(), None


def activated_in(frame: StreamFrame) -> Activated:
    """Return whether the scales and the opacities of a frame's scene are activated."""
    if "filter_3D" in frame.tensors:
        return Activated(True, True)
    return parse_activated(frame.meta.get("activated", False))


def background_of(frame: StreamFrame) -> Color | None:
    """Return the background colour that travels with a stream.

    Waits for the GPU where it lies on one.
    """
    tensor = frame.tensors.get("background")
    if tensor is None:
        return None
    red, green, blue = np.nan_to_num(tensor.to_float32()).clip(0, 1)
    return float(red), float(green), float(blue)


# -- one frame ----------------------------------------------------------------------------


class _Conversion:
    """The way from the tensors of a frame to those of a scene.

    Room for the converted tensors is made at once; `run` fills it.
    """

    def __init__(
        self, frame: StreamFrame, choices: Collection[str], in_place: bool
    ) -> None:
        import torch

        self._frame = frame
        self._color = frame.meta.get("color")
        if self._color not in ("sh", "rgb", "rgb_logit"):
            raise ViewerError(
                f"gaussians: color is {self._color!r}, not 'sh', 'rgb' or 'rgb_logit'"
            )
        self._stored = _stored_tensors(frame, in_place)
        self._tensors = dict(self._stored)
        self._steps: list[Callable[[], None]] = []
        self._activated = _chosen_activation(frame, choices)
        stored = self._stored
        means = stored["means"]
        if self._color != "sh":
            rgb = stored["rgb"]
            self._tensors["sh0"] = torch.empty(rgb.shape, device=rgb.device)
            self._steps.append(self._convert_colors)
        if "quats" in choices:
            self._tensors["quats"] = torch.empty_like(stored["quats"])
            self._steps.append(self._roll_quats)
        if self._color != "sh" or "shN" not in stored:
            self._tensors["shN"] = _no_harmonics(len(means), means.device)
        if "filter_3D" in stored:
            options = {"dtype": torch.float32, "device": stored["scales"].device}
            self._tensors["scales"] = torch.empty(len(means), 3, **options)
            self._tensors["opacities"] = torch.empty(len(means), **options)
            self._steps.append(self._filter)
        elif stored["scales"].shape[1] == 2:
            self._tensors["scales"] = stored["scales"].new_empty(len(means), 3)
            self._steps.append(self._add_flat_scale)

    def run(self) -> None:
        """Compute the tensors of the scene."""
        for step in self._steps:
            step()

    def ready(self, stream: int) -> None:
        """Have a CUDA stream wait for the frame, and fill the tensors of the scene."""
        self._frame.wait(stream)
        if not self._steps:
            return
        import torch

        external = driver.torch_stream(stream, self._stored["means"].device)
        with torch.no_grad(), torch.cuda.stream(external):
            self.run()

    def scene(self) -> GaussianScene:
        """Return the scene; its tensors are filled by `run`."""
        meta = self._frame.meta
        activated = self._activated
        if "filter_3D" in self._stored:
            activated = Activated(True, True)
        sh_degree = 0
        if self._color == "sh":
            sh_degree = int(meta.get("sh_degree", 0))
        return GaussianScene(
            *(self._tensors[name] for name in FIELDS),
            activated=_plain_activation(activated),
            sh_degree=sh_degree,
            antialiased=bool(meta.get("antialiased")),
            version=self._frame.version,
            notes=tuple(meta_phrases(meta, _KNOWN_META)),
        )

    # Another stream may read the filled tensors meanwhile, after an earlier call: each
    # step overwrites them once, by what they are.

    def _convert_colors(self) -> None:
        """Compute "sh0", the coefficients of colours, or of their logits."""
        rgb = self._stored["rgb"].float()
        if self._color == "rgb_logit":
            rgb = rgb.sigmoid()
        self._tensors["sh0"].copy_((rgb - 0.5) / SH_C0)

    def _roll_quats(self) -> None:
        """Compute "quats" from quaternions x y z w."""
        self._tensors["quats"].copy_(self._stored["quats"].roll(1, 1))

    def _add_flat_scale(self) -> None:
        """Compute "scales", three of flat Gaussians, of which two are stored."""
        scales = self._tensors["scales"]
        scales[:, :2].copy_(self._stored["scales"])
        if self._activated.scales:
            scales[:, 2] = 0.0
        else:
            scales[:, 2] = -math.inf

    def _filter(self) -> None:
        """Compute "scales" and "opacities" behind mip-splatting's 3D filter.

        Two scales are filtered as two: the Gaussian stays flat.
        """
        import torch

        sharp = self._stored["scales"].float()
        if not self._activated.scales:
            sharp = sharp.exp()
        smooth = sharp.hypot(self._stored["filter_3D"].float()[:, None])
        shrinking = torch.where(smooth > 0, sharp / smooth, 1.0).prod(1)
        opacities = self._stored["opacities"].float()
        if not self._activated.opacities:
            opacities = opacities.sigmoid()
        missing = 3 - smooth.shape[1]
        padded = torch.nn.functional.pad(smooth, (0, missing))
        self._tensors["scales"].copy_(padded)
        self._tensors["opacities"].copy_(opacities * shrinking)


def _stored_tensors(frame: StreamFrame, in_place: bool) -> dict[str, torch.Tensor]:
    """Return the tensors of a frame: over its memory, or copies on the CPU."""
    import torch

    stored: dict[str, torch.Tensor] = {}
    for name, tensor in frame.tensors.items():
        if name == "background":
            continue
        if in_place:
            stored[name] = tensor.torch().detach()  # type: ignore[union-attr]
            continue
        values = torch.from_numpy(tensor.to_floats())
        if name != "means":
            values = values.float()
        stored[name] = values
    return stored


def _chosen_activation(frame: StreamFrame, choices: Collection[str]) -> Activated:
    """Return the activation of the stored tensors, as the user sees it."""
    activated = parse_activated(frame.meta.get("activated", False))
    if "activated" in choices:
        activated = Activated(not activated.scales, not activated.scales)
    if "opacities" in choices:
        activated = activated._replace(opacities=not activated.opacities)
    return activated


def _plain_activation(activated: Activated) -> bool | Activated:
    """Return one value where that of scales and of opacities is the same."""
    if activated.scales == activated.opacities:
        return activated.scales
    return activated


@functools.lru_cache(maxsize=4)
def _no_harmonics(count: int, device: torch.device) -> torch.Tensor:
    """Return a tensor (count, 0, 3), the same again for the same arguments.

    A renderer sees by it that nothing moved.
    """
    import torch

    return torch.empty((count, 0, 3), device=device)


# -- frames of several ranks --------------------------------------------------------------


def _join_scenes(
    frame: JoinedFrame, prepared: Sequence[tuple[GaussianScene, Ready | None]]
) -> tuple[GaussianScene, Ready | None]:
    """Return one scene of the scenes of several ranks, on the device of the first one.

    Args:
        prepared: the scene of each rank, and its `ready`.
    """
    scenes = [scene for scene, _ in prepared]
    joined = _make_room(frame, scenes)
    _, first_ready = prepared[0]
    if first_ready is None:
        _copy_scenes(scenes, joined)
        return joined, None
    frame.pinned.append(prepared)
    return joined, _joining(prepared, joined)


def _make_room(frame: JoinedFrame, scenes: Sequence[GaussianScene]) -> GaussianScene:
    """Return a scene for the Gaussians of several, with uninitialised tensors."""
    import torch

    first = scenes[0]
    device = first.means.device
    row_count = sum(map(len, scenes))
    coefficients = max(scene.shN.shape[1] for scene in scenes)
    dtypes: dict[str, torch.dtype] = dict.fromkeys(FIELDS, torch.float32)
    for scene in scenes:
        if scene.means.dtype.itemsize == 8:
            dtypes["means"] = scene.means.dtype
    tensors: dict[str, Any] = {}
    for name, row_shape in row_shapes(coefficients).items():
        shape = (row_count, *row_shape)
        tensors[name] = torch.empty(shape, dtype=dtypes[name], device=device)
    return replace(
        first,
        **tensors,
        version=frame.version,
        sh_degree=max(scene.sh_degree for scene in scenes),
        notes=tuple(meta_phrases(frame.meta, _KNOWN_META)),
    )


def _copy_scenes(scenes: Sequence[GaussianScene], joined: GaussianScene) -> None:
    """Copy scenes into one, one after the other."""
    # A rank's scene may hold fewer coefficients.
    joined.shN.zero_()
    start = 0
    for scene in scenes:
        rows = joined[start : start + len(scene)]
        rows = replace(rows, shN=rows.shN[:, : scene.shN.shape[1]])
        for name in FIELDS:
            target = getattr(rows, name)
            source = getattr(scene, name).reshape(target.shape)
            target.copy_(source, non_blocking=True)
        start += len(scene)


def _joining(
    prepared: Sequence[tuple[GaussianScene, Ready | None]], joined: GaussianScene
) -> Ready:
    """Return the `ready` of a joined scene: the first stream joins; others wait for it."""
    import torch

    device = joined.means.device
    joined_events: list[Any] = []

    def ready(stream: int) -> None:
        reader = driver.torch_stream(stream, device)
        if joined_events:
            reader.wait_event(joined_events[0])
            return
        with torch.no_grad(), torch.cuda.stream(reader):
            for scene, wait in prepared:
                source = reader
                if scene.gpu != device:
                    source = torch.cuda.current_stream(scene.gpu)
                wait(source.cuda_stream)  # type: ignore[misc]
            _copy_scenes([scene for scene, _ in prepared], joined)
            joined_events.append(reader.record_event())

    return ready
