"""A scene on a GPU: as gsplat takes it, activated, in buffers that stay."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from splatview_viewer.render.activation import center_and_size
from splatview_viewer.render.base import LeftOut
from splatview_viewer.render.gsplat.activation import activate
from splatview_viewer.render.gsplat.cuda import blocks, kernels
from splatview_viewer.render.gsplat.float_scene import ARRAYS, FloatScene
from splatview_viewer.render.gsplat.packed_scene import (
    SHAPE_FLOATS,
    PackedScene,
    halves_of,
    pack,
    unpacked,
)
from splatview_viewer.scene import EVERYTHING, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene, as_floats, empty_scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene import Selection

FAR = 64.0
"""A scene farther from the origin than this many times its own size is drawn relative to
its middle."""
SAMPLE = 1024
"""Gaussians that are looked at to tell where a scene lies."""
_SPARE_SHARE = 4
"""A buffer that grows gets a quarter more than is needed."""
_MAX_OVERSIZE = 4
"""A buffer may be this many times larger than is needed."""


class _Shape(NamedTuple):
    """Size of a scene's buffers."""

    rows: int
    sh_degree: int


_NO_SHAPE = _Shape(-1, -1)


class DeviceGaussians:
    """N Gaussians on one GPU.

    Everything happens on the CUDA stream that is current, and nothing waits for it, except
    for the first scene.

    A Gaussian with a NaN or an infinity in any field, a scale over `SCALE_MAX` or a
    quaternion of length zero gets opacity 0, which gsplat skips before it looks at
    anything else.
    """

    def __init__(self, device: torch.device) -> None:
        """Start without Gaussians.

        Raises:
            RendererError: the viewer's own kernel does not compile.
        """
        self.device = device
        self.sh_degree = 0
        """The degree in use."""
        self.origin = np.zeros(3)
        """float64, subtracted from the means, so that a scene far away keeps its
        detail."""
        self._buffers: dict[str, torch.Tensor] = {}
        nothing = torch.empty(0, device=device)
        self._no_gaussians = FloatScene(nothing, nothing, nothing, nothing, nothing)
        self._float_scene = self._no_gaussians
        """The Gaussians, in the buffers."""
        self._float_shape = _NO_SHAPE
        self._count = 0
        self._left_out = torch.zeros(3, dtype=torch.int64, pin_memory=True)
        """Written by the GPU at the end of a load, in the order of `LeftOut`'s reasons."""
        self._counters = torch.zeros(4, dtype=torch.int32, device=device)
        self._kernels = kernels("activation.cu", device=device.index or 0)
        self._packed: PackedScene | None = None
        """The Gaussians of the last load, packed."""
        self.is_packed_only = False
        """The last load has left the bits out that packed Gaussians do not have."""
        self._must_unpack = False
        """There are only packed ones yet."""
        self._shared_scene: GaussianScene | None = None
        """Result of `scene` since the last load."""
        self._readers: set[torch.cuda.Stream] = set()
        """Streams that may still read the result of `scene`."""
        self._flags = torch.empty(0, dtype=torch.uint8, device=device)
        self._flags_of: Selection | None = None
        self._reserve()

    @property
    def is_shifted(self) -> bool:
        """True if the means are relative to something else than the world's origin."""
        return any(self.origin.tolist())

    @property
    def left_out(self) -> LeftOut:
        """Gaussians that cannot be drawn, of the last load that the GPU has finished."""
        if not self._count:
            return LeftOut()
        return LeftOut(*self._left_out.tolist())

    def load(
        self,
        scene: GaussianScene,
        begin_clock: Callable[[], object] = lambda: None,
        *,
        packed_only: bool = False,
    ) -> None:
        """Activate a scene into the buffers.

        Args:
            scene: lies here or in host memory.
            packed_only: pack a scene that lies here at once, in half the time. What else
                is asked for is made of that then.
            begin_clock: called when everything that has to be awaited has been, before
                the GPU is given work; by then all that readers have given their streams.
        """
        self._shared_scene = None
        self._flags_of = None
        self._packed = None
        self.is_packed_only = False
        self._must_unpack = False
        stream = torch.cuda.current_stream(self.device)
        while self._readers:
            stream.wait_event(self._readers.pop().record_event())
        previous_count = self._count
        self._count = len(scene)
        if self._count == 0:
            self._reserve()
            return
        self.sh_degree = min(scene.sh_degree, scene.stored_sh_degree)
        # To look at a scene on a GPU waits for it; newer versions lie where it did.
        if not scene.on_gpu or previous_count == 0:
            self.origin = self._origin_of(scene)
        begin_clock()
        if packed_only and scene.on_gpu:
            packed = self._reserve_packed()
            into: FloatScene | PackedScene = packed
            self._packed = packed
        else:
            self._reserve()
            into = self._float_scene
        activate(
            self._on_device(scene),
            into,
            self.origin,
            self._left_out,
            self._counters,
            self._kernels,
        )
        self.is_packed_only = self._packed is not None
        self._must_unpack = self.is_packed_only

    @property
    def float_scene(self) -> FloatScene:
        """Return the Gaussians, in the buffers."""
        if self._must_unpack:
            assert self._packed is not None
            self._reserve()
            floats = unpacked(self._packed)
            for name in ARRAYS:
                getattr(self._float_scene, name).copy_(getattr(floats, name))
            self._must_unpack = False
        return self._float_scene

    def _origin_of(self, scene: GaussianScene) -> np.ndarray:
        """Return the middle of a scene that is far from the origin, else the origin."""
        sample = scene.means[:: blocks(self._count, SAMPLE)]
        center, size = center_and_size(as_floats(sample).cpu().numpy())
        if np.abs(center).max() > FAR * max(size, 1e-30):
            return center.astype(np.float32).astype(np.float64)
        return np.zeros(3)

    def scene(self, reader: torch.cuda.Stream | None = None) -> GaussianScene:
        """Return the Gaussians as `Renderer.scene` does.

        Args:
            reader: the stream that reads them next; None for the one that is current.
        """
        if self._count == 0:
            return empty_scene()
        if self._shared_scene is None:
            self._shared_scene = self._share_scene()
        if reader is not None:
            reader.wait_event(torch.cuda.current_stream(self.device).record_event())
            # The means lie in memory of their own, unlike the other tensors.
            self._shared_scene.means.record_stream(reader)
            self._readers.add(reader)
        return self._shared_scene

    def _share_scene(self) -> GaussianScene:
        """Return the buffers as a scene, with a copy of the means in its own coordinates."""
        floats = self.float_scene
        if self.is_shifted:
            means = floats.means.double()
        else:
            means = floats.means.clone()
        for axis, value in enumerate(self.origin.tolist()):
            means[:, axis] += value
        return GaussianScene(
            means,
            floats.quats,
            floats.scales,
            floats.opacities,
            floats.sh0,
            floats.shN,
            activated=True,
            sh_degree=self.sh_degree,
        )

    def packed_scene(self) -> PackedScene:
        """Return the Gaussians packed, once for each load, in buffers that stay.

        Raises:
            torch.cuda.OutOfMemoryError: there is too little memory.
        """
        if self._packed is None:
            packed = self._reserve_packed()
            if self._count:
                pack(self.float_scene, packed, self._kernels)
            self._packed = packed
        return self._packed

    def _reserve_packed(self) -> PackedScene:
        """Return room for the packed Gaussians."""
        shapes = self._packed_buffer("shapes", SHAPE_FLOATS)
        colors = self._packed_buffer("packed_colors", halves_of(self.sh_degree) // 2)
        return PackedScene(shapes, colors.view(torch.float16), self.sh_degree)

    def _packed_buffer(self, name: str, floats: int) -> torch.Tensor:
        """Return a buffer for so many float32 a Gaussian, (N, floats)."""
        size = self._count * floats
        return self._reserve_buffer(name, size)[:size].view(self._count, floats)

    def drop_packed(self) -> None:
        """Release the packed Gaussians."""
        if self._must_unpack:
            _ = self.float_scene
        self._packed = None
        for name in ("shapes", "packed_colors"):
            self._buffers.pop(name, None)

    def flags(self, selection: Selection) -> torch.Tensor | None:
        """Return (N,) uint8 as `scene.flags` gives them, found once for each load.

        They are at the same place as long as N stays. None where the selection leaves
        everything as it is.
        """
        if selection == EVERYTHING or self._count == 0:
            return None
        if self._flags_of != selection:
            selected = flags(self.scene(), selection)
            if len(selected) != len(self._flags):
                self._flags = selected
            else:
                self._flags.copy_(selected)
            self._flags_of = selection
        return self._flags

    def to_host(self) -> GaussianScene:
        """Return all Gaussians in host memory; none after a load that failed.

        Waits, and takes no memory on the GPU.
        """
        if self._count == 0:
            return empty_scene()
        if self._must_unpack:
            assert self._packed is not None
            floats = unpacked(self._packed.to_host())
        elif self._float_shape == _Shape(self._count, self.sh_degree):
            floats = self._float_scene
        else:
            return empty_scene()
        means = floats.means.cpu()
        if self.is_shifted:
            means = means + torch.from_numpy(self.origin)
        colors = floats.colors.cpu()
        return GaussianScene(
            means,
            floats.quats.cpu(),
            floats.scales.cpu(),
            floats.opacities.cpu(),
            colors[:, 0],
            colors[:, 1:],
            activated=True,
            sh_degree=self.sh_degree,
        )

    def _reserve(self) -> None:
        """Give `float_scene` the scene's size.

        Buffers grow with some memory to spare, as scenes in training do.
        """
        shape = _Shape(self._count, self.sh_degree)
        if self._float_shape == shape:
            return
        # It stays so if there is too little memory.
        self._float_shape = _NO_SHAPE
        self._float_scene = self._no_gaussians
        row_shapes = {
            "means": (3,),
            "quats": (4,),
            "scales": (3,),
            "opacities": (),
            "colors": ((self.sh_degree + 1) ** 2, 3),
        }
        views: dict[str, torch.Tensor] = {}
        for name, row_shape in row_shapes.items():
            size = self._count * math.prod(row_shape)
            buffer = self._reserve_buffer(name, size)
            views[name] = buffer[:size].view((self._count, *row_shape))
        self._float_scene = FloatScene(**views)
        self._float_shape = shape

    def _reserve_buffer(self, name: str, size: int) -> torch.Tensor:
        """Return a buffer for `size` floats or some more."""
        buffer = self._buffers.pop(name, None)
        if buffer is None or not size <= buffer.numel() <= _MAX_OVERSIZE * size:
            capacity = size
            if buffer is not None and buffer.numel() <= size:
                capacity = size + size // _SPARE_SHARE
            # The old one is released before the new one is made.
            del buffer
            buffer = torch.empty(capacity, dtype=torch.float32, device=self.device)
        self._buffers[name] = buffer
        return buffer

    def _on_device(self, scene: GaussianScene) -> GaussianScene:
        """Return a scene with its tensors on this GPU.

        Those of the host are copied to where they will stay.
        """
        if scene.on_gpu:
            if scene.opacities.ndim > 1:
                return replace(scene, opacities=scene.opacities.reshape(self._count))
            return scene
        floats = self._float_scene
        is_double = scene.means.dtype == torch.float64
        if is_double:
            means = scene.means.to(self.device)
        else:
            means = floats.means
        raw = GaussianScene(
            means,
            floats.quats,
            floats.scales,
            floats.opacities,
            floats.sh0,
            floats.shN,
            activated=scene.activated,
        )
        for name in FIELDS:
            if name == "shN" or (name == "means" and is_double):
                continue
            target: torch.Tensor = getattr(raw, name)
            target.copy_(getattr(scene, name).reshape(target.shape))
        shn_count = (self.sh_degree + 1) ** 2 - 1
        if shn_count:
            raw.shN.copy_(scene.shN[:, :shn_count])
        return raw
