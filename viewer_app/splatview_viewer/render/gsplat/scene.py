"""A scene on a GPU: as gsplat takes it, activated, in buffers that stay; and when it is read from where it was."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview_viewer.render.activation import middle
from splatview_viewer.render.base import LeftOut
from splatview_viewer.render.gsplat.cuda import kernels
from splatview_viewer.render.gsplat.frame import blocks
from splatview_viewer.scene import EVERYTHING, flags
from splatview_viewer.scene.scene import FIELDS, GaussianScene, as_floats, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.render.gsplat.frame import Launcher
    from splatview_viewer.scene import Selection

FAR = 64.0
"""A scene farther from the origin than this many times its own size is drawn relative to its middle."""


class DeviceGaussians:
    """N Gaussians on one GPU. Everything happens on the CUDA stream that is current, and nothing waits for it,
    except for the first scene.

    A Gaussian with a NaN or an infinity in any field, a scale over `SCALE_MAX` or a quaternion of length zero gets
    opacity 0, which gsplat skips before it looks at anything else.
    """

    def __init__(self, device: torch.device) -> None:
        """Raises RendererError: the viewer's own kernel does not compile."""
        self.device = device
        self.sh_degree = 0
        """The degree in use."""
        self.origin = np.zeros(3)
        """float64: what was subtracted from the means, so that a scene far away keeps its detail."""
        self._buffers: dict[str, torch.Tensor] = {}
        self.active: Active
        """The Gaussians, in the buffers."""
        self._active_for = -1, -1
        """The number of Gaussians and the degree of `active`."""
        self._n = 0
        self._left_out = torch.zeros(3, dtype=torch.int64, pin_memory=True)
        """Written by the GPU at the end of a load, in the order of `LeftOut`'s reasons."""
        self._counters = torch.zeros(4, dtype=torch.int32, device=device)
        self._own = kernels("activate.cu", device=device.index or 0)
        self._lent: GaussianScene | None = None
        """Result of `scene` since the last load."""
        self._readers: set[torch.cuda.Stream] = set()
        """Those that may still read what was lent."""
        self._flags = torch.empty(0, dtype=torch.uint8, device=device)
        self._flags_of: Selection | None = None
        self._make_room()

    @property
    def left_out(self) -> LeftOut:
        """Gaussians that cannot be drawn, as far as known: of the last load that the GPU has finished."""
        return LeftOut(*self._left_out.tolist()) if self._n else LeftOut()

    def load(
        self, scene: GaussianScene, begin: Callable[[], object] = lambda: None
    ) -> None:
        """Activate into the buffers. The scene may lie here or in host memory. `begin` is called when everything that
        has to be awaited has been, before the GPU is given work; by then all that readers have given their streams.
        """
        self._lent = None
        self._flags_of = None
        while self._readers:
            torch.cuda.current_stream(self.device).wait_event(
                self._readers.pop().record_event()
            )
        before = self._n
        self._n = len(scene)
        if self._n == 0:
            self._make_room()
            return
        self.sh_degree = min(scene.sh_degree, scene.stored_sh_degree)
        if (
            not scene.on_gpu or before == 0
        ):  # to look at one on a GPU waits for it; newer versions lie where it did
            center, size = middle(
                as_floats(scene.means[:: blocks(self._n, SAMPLE)]).cpu().numpy()
            )
            far = np.abs(center).max() > FAR * max(size, 1e-30)
            if far:
                self.origin = center.astype(np.float32).astype(np.float64)
            else:
                self.origin = np.zeros(3)
        begin()
        self._make_room()
        out = self.active
        activate(
            self._raw(scene, out),
            out,
            self.origin,
            self._left_out,
            self._counters,
            self._own,
        )

    def scene(self, reader: torch.cuda.Stream | None = None) -> GaussianScene:
        """As `Renderer.scene`, for what `reader` does next; None: for the stream that is current."""
        if self._n == 0:
            return nothing()
        if self._lent is None:
            # A copy of the means, which others see from the scene's own origin.
            a = self.active
            means = a.means.double() if self.origin.any() else a.means.clone()
            for axis, value in enumerate(self.origin.tolist()):
                means[:, axis] += value
            self._lent = GaussianScene(
                means,
                a.quats,
                a.scales,
                a.opacities,
                a.colors[:, 0],
                a.colors[:, 1:],
                activated=True,
                sh_degree=self.sh_degree,
            )
        if reader is not None:
            reader.wait_event(torch.cuda.current_stream(self.device).record_event())
            self._lent.means.record_stream(reader)  # memory of its own, unlike the rest
            self._readers.add(reader)
        return self._lent

    def flags(self, selection: Selection) -> torch.Tensor | None:
        """(N,) uint8 as `scene.flags` gives them, found once for each load; at the same place as long as N stays.
        None where the selection leaves everything as it is.
        """
        if selection == EVERYTHING or self._n == 0:
            return None
        if self._flags_of != selection:
            made = flags(self.scene(), selection)
            if len(made) != len(self._flags):
                self._flags = made
            else:
                self._flags.copy_(made)
            self._flags_of = selection
        return self._flags

    def to_host(self) -> GaussianScene:
        """All of them in host memory; none after a load that failed. Waits, and takes no memory on the GPU."""
        if self._n == 0 or self._active_for != (self._n, self.sh_degree):
            return nothing()
        means, quats, scales, opacities, colors = (
            t.cpu() for t in vars(self.active).values()
        )
        means = means + torch.from_numpy(self.origin) if self.origin.any() else means
        return GaussianScene(
            means,
            quats,
            scales,
            opacities,
            colors[:, 0],
            colors[:, 1:],
            activated=True,
            sh_degree=self.sh_degree,
        )

    def _make_room(self) -> None:
        """Have `active` of the scene's size. Buffers grow with some room to spare, as scenes in training do."""
        wanted = self._n, self.sh_degree
        if self._active_for == wanted:
            return
        self._active_for = -1, -1  # also if there is too little memory
        k = (self.sh_degree + 1) ** 2
        shapes = {
            "means": (3,),
            "quats": (4,),
            "scales": (3,),
            "opacities": (),
            "colors": (k, 3),
        }
        views: dict[str, torch.Tensor] = {}
        for name, shape in shapes.items():
            size = self._n * math.prod(shape)
            held = self._buffers.pop(name, None)
            if held is None or not size <= held.numel() <= 4 * size:
                if held is None or held.numel() > size:
                    capacity = size
                else:
                    capacity = size + size // 4
                del held  # before the new one is made
                held = torch.empty(capacity, dtype=torch.float32, device=self.device)
            self._buffers[name] = held
            views[name] = held[:size].view((self._n, *shape))
        self.active = Active(**views)
        self._active_for = wanted

    def _raw(self, scene: GaussianScene, to: Active) -> GaussianScene:
        """Return the scene with its tensors on this GPU; those of the host are copied to where they will stay."""
        if scene.on_gpu:
            if scene.opacities.ndim > 1:
                return replace(scene, opacities=scene.opacities.reshape(self._n))
            return scene
        rest = (self.sh_degree + 1) ** 2 - 1
        wide = scene.means.dtype == torch.float64
        means = scene.means.to(self.device) if wide else to.means
        raw = GaussianScene(
            means,
            to.quats,
            to.scales,
            to.opacities,
            to.colors[:, 0],
            to.colors[:, 1:],
            activated=scene.activated,
        )
        for name in ("quats", "scales", "opacities", "sh0") if wide else FIELDS[:-1]:
            values: torch.Tensor = getattr(raw, name)
            values.copy_(getattr(scene, name).reshape(values.shape))
        if rest:
            raw.shN.copy_(scene.shN[:, :rest])
        return raw


class ArrayLease:
    """Keeps the arrays of a scene on a GPU from being reused while they may be read.

    As a context: what one stream is given inside is awaited as a whole.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        """`stream`: the one that reads and draws."""
        self._stream = stream
        self._next: (
            tuple[GaussianScene, Callable[[int], None] | None, torch.cuda.Event | None]
            | None
        ) = None
        self._now: GaussianScene | None = None
        self._ready: Callable[[int], None] | None = None
        self._mark: torch.cuda.Event | None = None

    @property
    def pending(self) -> bool:
        """True if there is a scene that `begin` was not called for."""
        return self._next is not None

    @property
    def going_on(self) -> bool:
        """True if one may still be read, or is going to. Never waits."""
        if self._now is not None and (self._mark is None or self._mark.query()):
            self._now = None
        return self._now is not None or self._next is not None

    def put(
        self, scene: GaussianScene | None, ready: Callable[[int], None] | None = None
    ) -> None:
        """The scene to read next, in place of the one before, or none. `ready` as for `Renderer.load`."""
        self._next = None
        if scene is not None:
            made: Any = (
                None
                if ready is not None
                else torch.cuda.current_stream(scene.gpu).record_event()
            )
            self._next = scene, ready, made

    def begin(self) -> GaussianScene | None:
        """Take the scene that is pending, if any; the stream waits for its data."""
        if self._next is None:
            return None
        (self._now, self._ready, made), self._next = self._next, None
        if made is not None:
            self._stream.wait_event(made)
        if self._ready is not None:
            self._ready(self._stream.cuda_stream)
        return self._now

    def take_back(self) -> None:
        """It was not read after all: it is pending again."""
        if self._now is not None:
            self._next = (self._now, self._ready, None)
            self._now = None

    @property
    def done(self) -> bool:
        """True if all that is done. Never waits."""
        return self._mark is None or self._mark.query()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        """All that reads the scene, or draws, was given to the stream."""
        self._mark = self._mark or torch.cuda.Event()
        self._mark.record(self._stream)

    def wait(self) -> None:
        """Until that is done. The driver looks at the event all the time: a thread that sleeps wakes too late."""
        if self._mark is not None:
            self._mark.synchronize()

    def to_host(self) -> GaussianScene | None:
        """The scene that is pending, copied on the current stream; None for none."""
        if self._next is None:
            return None
        scene, ready, made = self._next
        if made is not None:
            torch.cuda.current_stream(scene.gpu).wait_event(made)
        return scene.to_host(ready)


# -- activation -------------------------------------------------------------------------------------------------------

THREADS = 128
BLOCKS = 8192
"""At most: some ten times what a large GPU runs at once. Each takes what is next until nothing is left."""
SAMPLE = 1024
"""Gaussians that are looked at to tell where a scene lies."""
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""Arguments of the kernel."""


@dataclass(frozen=True)
class Active:
    """N Gaussians to draw from: contiguous, float32, on one device. May be the very memory that is activated."""

    means: torch.Tensor
    """(N, 3) relative to an origin"""
    quats: torch.Tensor
    """(N, 4); the largest component is 1 or -1"""
    scales: torch.Tensor
    """(N, 3) in world units"""
    opacities: torch.Tensor
    """(N,) in [0, 1]; 0 for a Gaussian that cannot be drawn: one that is not finite (`LeftOut`), a scale
    over `SCALE_MAX` or a quaternion of length zero. gsplat looks at nothing else of it"""
    colors: torch.Tensor
    """(N, K, 3); K is 1, 4, 9, 16 or 25"""


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("strides", ctypes.c_int64 * 3),
        ("type", ctypes.c_int),
        ("unused", ctypes.c_int),
    )

    @classmethod
    def of(cls, t: torch.Tensor) -> _Array:
        return cls(t.data_ptr(), (ctypes.c_int64 * 3)(*t.stride()), TYPES[t.dtype], 0)


class _Source(ctypes.Structure):
    _fields_ = (
        *((name, _Array) for name in FIELDS),
        ("origin", ctypes.c_float * 3),
        ("scales_activated", ctypes.c_int),
        ("opacities_activated", ctypes.c_int),
    )


def activate(
    raw: GaussianScene,
    out: Active,
    origin: np.ndarray,
    left_out: torch.Tensor,
    counters: torch.Tensor,
    own: Launcher,
) -> None:
    """Activate on the current stream; nothing is waited for.

    Args:
        raw: of any floating dtypes and strides, on one device; higher coefficients than are used may be there.
        out: may share memory with `raw`, each tensor with its own counterpart.
        origin: (3,), subtracted from the means.
        left_out: (3,) int64 that the host can read, written when it is done: counts by `LeftOut`'s reasons.
        counters: (4,) int32 zeros on the device, zeros again when it is done.
        own: the kernels of activate.cu.
    """
    fields = [
        t if t.dtype in TYPES else t.float()
        for t in (
            raw.means,
            raw.quats,
            raw.scales,
            raw.opacities,
            raw.sh0[:, None],
            raw.shN,
        )
    ]
    source = _Source(
        *(_Array.of(t) for t in fields),
        (ctypes.c_float * 3)(*origin.tolist()),
        *raw.activation,
    )
    n, terms = out.colors.shape[:2]
    own.launch(
        "activate",
        min(blocks(n, THREADS), BLOCKS),
        THREADS,
        ctypes.c_int(n),
        ctypes.c_int(terms),
        source,
        out.means,
        out.quats,
        out.scales,
        out.opacities,
        out.colors,
        counters,
        left_out,
    )
