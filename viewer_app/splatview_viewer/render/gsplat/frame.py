"""gsplat's picture without a question to the host: a frame is one launch of a CUDA graph.

`gsplat.rasterization` reads the number of (Gaussian, tile) pairs back to the host in the middle of a frame, and
starts some fifteen kernels from Python. Beside a training process, which shares the GPU by time slices, both cost
the trainer more than the drawing itself. Here gsplat's own projection stays as it is; what follows works with a
fixed number of slots for pairs and by gsplat's rules (`frame.cu`), so the picture is gsplat's.
A frame that needs more slots says so afterwards and is drawn again:

    graph = FrameGraph(torch.device("cuda", 0))
    graph.load(means, quats, scales, opacities, sh0, shN)
    rgba, depth = graph.render(camera, options)
    event.synchronize()            # showing the picture waits for it anyway
    while graph.overflowed():
        rgba, depth = graph.render(camera, options)
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.core.errors import RendererError
from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import EPS_2D, PAINTS, PAIRS_MAX, THINNED
from splatview_viewer.render.gsplat.cuda import KernelModule, kernels

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera, CameraModel
    from splatview_viewer.render.base import Paint, RenderOptions

CAPTURE_AFTER = 3
"""A kind of frame is captured when it is drawn the third time: a scene that changes its size with every version is
never worth a capture, which costs a few frames' time."""
GRAPHS = 8
"""Captured kinds of frames kept. They share one memory pool, which never shrinks: before more are captured, all are
dropped and it is given back."""
SPARE = 1 << 21
"""From so many slots on, the memory that frames took before the capture is given back after it."""
IN_FLIGHT = 16
"""Frames whose numbers of pairs may be outstanding at a time."""
_UNKNOWN = -1


class FrameGraph:
    """Draws one scene at a time, on torch's current stream: always the same one, never the default, which cannot be
    captured.
    """

    def __init__(self, device: torch.device) -> None:
        """Compiles the viewer's kernels if that was not done yet, about a second.

        Raises RendererError: gsplat has no kernels here, or the viewer's own do not compile.
        """
        self._device = device
        try:  # its wrappers add autograd and checks that are of no use here
            from gsplat.cuda import _backend
        except Exception as e:  # it compiles itself, and that fails in many ways
            raise RendererError(f"gsplat's CUDA kernels do not load here: {e}") from e
        self._gsplat: Any = getattr(_backend, "_C", None)
        if self._gsplat is None:
            raise RendererError(
                "gsplat found no CUDA toolkit to compile its kernels with; install nvcc, or a built "
                "gsplat"
            )
        self._own("short")
        self._scene: Scene | None = None
        self.capacity = Capacity()
        with torch.cuda.device(self._device):
            self._parameters = torch.zeros(
                ctypes.sizeof(Parameters) // 4, device=self._device
            )
            self._needed = torch.full(
                (IN_FLIGHT,), _UNKNOWN, dtype=torch.int64, pin_memory=True
            )
        self._needed_array = self._needed.numpy()
        self._needed_at = self._needed.data_ptr()
        self._drawn = 0
        self._judged = True
        self._stream: torch.cuda.Stream | None = None
        self.graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        """Captured kinds of frames."""
        self._seen: dict[GraphKey, int] = {}
        """Count of frames by kind, of kinds not captured yet."""
        self._pool: Any = None
        self._spare = False
        self.failure = ""
        """Why frames of this scene are not captured; "" when they are."""

    @property
    def thinned(self) -> str:
        """As `Renderer.thinned`, of the last frame that was judged."""
        return THINNED if self.capacity.full else ""

    def load(
        self,
        means: torch.Tensor,
        quats: torch.Tensor,
        scales: torch.Tensor,
        opacities: torch.Tensor,
        sh0: torch.Tensor,
        shN: torch.Tensor,
    ) -> None:
        """The scene from now on. Nothing is copied: the storage stays until the next `load`, and what is written
        into it, in stream order, shows. The same storage again costs nothing and keeps the graphs.

        The tensors have to be as `Scene` says: float32 on this device, activated (scales in world units,
        opacities in [0, 1]). `sh[:, 0]` and `sh[:, 1:]` of an (N, K, 3) tensor do for sh0 and shN.
        """
        scene = Scene(
            *(t.detach() for t in (means, quats, scales, opacities, sh0, shN))
        )
        if self._scene is None or scene.layout != self._scene.layout:
            self._drop_graphs()
            self._seen.clear()
            self.failure = ""
            self.capacity.at_least(len(means))
        self._scene = scene

    def select(self, flags: torch.Tensor | None) -> None:
        """(N,) uint8 as `Selection.flags` gives them, for the frames from now on: `RenderOptions.selection` is not
        looked at. Not copied: always the same storage until `load` is given another one. None: all are drawn, none
        stands out.
        """
        if self._scene is not None and flags is not self._scene.flags:
            self._scene = replace(self._scene, flags=flags)

    def render(
        self, camera: Camera, options: RenderOptions, rgba: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queue the drawing of a frame on the current stream of the current GPU; the host waits for nothing.

        Args:
            camera: its `model` may be any that gsplat projects: pinhole, ortho, fisheye.
            options: the degree is cut to what the scene has.
            rgba: (H, W, 4) contiguous float32 or float16 on this device to draw into; a new float32 tensor otherwise.

        Returns:
            rgba: (H, W, 4) colour, premultiplied, over black, and alpha; and, if `options.depth`, the accumulated
            depth, (H, W) float32. Whole unless `overflowed()` says otherwise.
        """
        scene = self._scene
        assert scene is not None
        size = camera.height, camera.width
        rgba = torch.empty((*size, 4), device=self._device) if rgba is None else rgba
        if options.sh_degree is None:
            degree = scene.degree
        else:
            degree = min(options.sh_degree, scene.degree)
        depth = torch.empty(size, device=self._device) if options.depth else None
        self._stream = torch.cuda.current_stream()
        self._drawn += 1
        self._judged = False
        place = self._drawn % IN_FLIGHT
        if len(scene.means) == 0:
            rgba.zero_()
            self._needed_array[place] = 0
            return rgba, None if depth is None else depth.zero_()
        settings = Parameters.of(
            camera, options, rgba, depth, self._needed_at + 8 * place
        )
        self._needed_array[place] = _UNKNOWN
        kind = GraphKey(
            camera.width,
            camera.height,
            camera.model,
            float(camera.near),
            float(camera.far),
            options.mode == "antialiased",
            options.depth,
            degree,
            rgba.element_size(),
            self.capacity.slots,
            options.paint,
            scene.flags is not None,
            options.scale != 1.0,
        )
        self._own(kind.key_type).launch("set_frame", 1, 64, settings, self._parameters)
        graph = self._graph(kind)
        if graph is None:
            self._draw(kind)
        else:
            graph.replay()
        return rgba, depth

    def overflowed(self) -> bool:
        """True if the last frame had too few slots, and so lacks Gaussians: render it again. There are more then. One
        that needs more than there may be is as good as it gets: see `thinned`.

        To be asked when the frame is done (its event was waited for); waits for it otherwise.
        """
        if self._judged or self._stream is None:
            return False
        if self._needed_array[self._drawn % IN_FLIGHT] == _UNKNOWN:
            self._stream.synchronize()
        needed = int(self._needed_array[self._drawn % IN_FLIGHT])
        self._judged = True
        if self._spare:  # here, where the GPU is done: giving back memory waits for it
            self._spare = False
            torch.cuda.empty_cache()
        return self.capacity.saw(needed)

    def rest(self) -> None:
        """Give back what frames were captured with; they are captured anew when they come often again."""
        self._drop_graphs()
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._drop_graphs()
        self._seen.clear()
        self._scene = None

    def _own(self, key_type: str) -> KernelModule:
        return kernels("frame.cu", (f"KEY={key_type}",), self._device.index)

    def _graph(self, kind: GraphKey) -> torch.cuda.CUDAGraph | None:
        """The graph for this kind of frame; captured now if it came often enough."""
        if kind in self.graphs:
            return self.graphs[kind]
        seen = self._seen.pop(kind, 0) + 1
        if len(self._seen) >= 4 * GRAPHS:
            self._seen.clear()
        self._seen[kind] = seen
        if seen < CAPTURE_AFTER or self.failure:
            return None
        if len(self.graphs) >= GRAPHS:
            self._drop_graphs()
        # Not `torch.cuda.graph`: that collects garbage, waits for the device and empties the allocator's cache.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                self._draw(kind)
            except BaseException:
                with contextlib.suppress(
                    RuntimeError
                ):  # names the consequence; the cause is on its way
                    graph.capture_end()
                raise
            graph.capture_end()
        except (RuntimeError, RendererError) as e:
            self.failure = f"no CUDA graph: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
            if not self.graphs:
                self._pool = None  # torch takes no pool back that lost its last graph
            return None
        self._seen.pop(kind, None)
        self._spare = self._spare or kind.slots >= SPARE
        self.graphs[kind] = graph
        return graph

    def _draw(self, kind: GraphKey) -> None:
        assert self._scene is not None
        try:
            draw(
                kind,
                self._scene,
                self._parameters,
                self._gsplat,
                self._own(kind.key_type),
            )
        except (
            AttributeError,
            TypeError,
        ) as e:  # of functions that are not gsplat's public interface
            raise RendererError(
                f"this version of gsplat is not the one that frames are made for (1.5.3): {e}"
            ) from e

    def _drop_graphs(self) -> None:
        if not self.graphs:
            return
        if (
            self._stream is not None
        ):  # a graph that may still run is not to be destroyed
            self._stream.synchronize()
        self.graphs.clear()
        self._pool = None
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()  # a pool without graphs is kept by torch until then


class Capacity:
    """Number of slots for pairs of Gaussian and tile: a quarter more than the frames of late needed, up to `most`.

    Grows at once, in steps that are at most an eighth; shrinks when 120 frames in a row needed less than 60 %.
    """

    FIRST = 1 << 16
    FRAMES = 120

    def __init__(self, most: int = PAIRS_MAX) -> None:
        self.slots = self.FIRST
        self.wanted = 0
        """Pairs that the last frame needed."""
        self._most = most
        self._peak = 0
        self._frames = 0

    @property
    def full(self) -> bool:
        """True if the last frame lacks Gaussians, and no later one gets more room: the farthest are left out."""
        return self.wanted > self.slots == self._most

    def at_least(self, gaussians: int) -> None:
        """A scene of so many Gaussians was loaded: a first guess, if it is more than there is."""
        self.slots = max(self.slots, self.rounded(gaussians * 3 // 2))

    def saw(self, needed: int) -> bool:
        """A frame needed so many. True: it had too few, and there are more now."""
        self.wanted = needed
        if needed > self.slots:
            before = self.slots
            self.slots = self.rounded(needed * 5 // 4)
            self._peak = 0
            self._frames = 0
            return self.slots > before
        self._peak = max(self._peak, needed)
        self._frames += 1
        if self._frames >= self.FRAMES:
            if self._peak < 0.6 * self.slots:
                self.slots = self.rounded(self._peak * 5 // 4)
            self._peak = 0
            self._frames = 0
        return False

    def rounded(self, slots: int) -> int:
        """Up to one of eight steps per power of two, so that there are few different numbers and so few graphs; no more
        than there may be.
        """
        slots = max(slots, self.FIRST)
        step = 1 << max(slots.bit_length() - 4, 0)
        return min(-(-slots // step) * step, self._most)


# -- what one frame consists of ---------------------------------------------------------------------------------------

TILE = 16
"""Pixels a side of gsplat's tiles."""
SHORT_TILES = 32766
"""Up to so many tiles, a tile's number is sorted as 16 bits, in half the time."""
BODY_FLOATS = 16
"""Numbers of `Body` in frame.cu."""
PART = 1 << 23
"""Pairs sorted by tile at a time, at most: what a sort needs beside them is ten times their keys."""


class Launcher(Protocol):
    """Launcher of kernels by name: `cuda.Kernels`."""

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None: ...


class Parameters(ctypes.Structure):
    """Parameters that change with each frame: `Frame` in frame.cu. Passed to a kernel by value, which writes it to the
    device in stream order, so that nothing on the host must stay as it is until then.
    """

    _fields_ = (
        ("viewmat", ctypes.c_float * 16),
        ("intrinsics", ctypes.c_float * 9),
        ("position", ctypes.c_float * 3),
        ("scale", ctypes.c_float),
        ("point_reach", ctypes.c_float),
        ("rgba", ctypes.c_uint64),
        ("depth", ctypes.c_uint64),
        ("needed", ctypes.c_uint64),
    )

    @classmethod
    def of(
        cls,
        camera: Camera,
        options: RenderOptions,
        rgba: torch.Tensor,
        depth: torch.Tensor | None,
        needed: int,
    ) -> Parameters:
        """`rgba` and `depth`: where the picture goes; `needed`: address of an int64 for the number of pairs."""
        viewmat = np.asarray(camera.viewmat, np.float32)  # as the kernels get it
        position = np.linalg.inv(viewmat.astype(np.float64))[:3, 3]
        made = cls(
            scale=options.scale,
            point_reach=options.point_reach,
            rgba=rgba.data_ptr(),
            depth=0 if depth is None else depth.data_ptr(),
            needed=needed,
        )
        made.viewmat[:], made.intrinsics[:], made.position[:] = (
            np.ravel(values).tolist() for values in (viewmat, camera.K, position)
        )
        return made


@dataclass(frozen=True)
class GraphKey:
    """All that frames drawn by one graph have in common."""

    width: int
    height: int
    model: CameraModel
    near: float
    far: float
    antialiased: bool
    depth: bool
    degree: int
    element_size: int
    """Bytes of a channel of the picture: 2 (float16) or 4 (float32)."""
    slots: int
    """Capacity: pairs of Gaussian and tile."""
    paint: Paint = "color"
    selected: bool = False
    """True if `Scene.flags` say which are hidden and which marked."""
    scaled: bool = False
    """True if standard deviations are multiplied by `Parameters.scale`."""

    @property
    def by_density(self) -> bool:
        """True if opacity and density make the picture, not shapes."""
        return PAINTS[self.paint].by_density

    @property
    def tiles(self) -> tuple[int, int]:
        """Columns and rows of tiles."""
        return -(-self.width // TILE), -(-self.height // TILE)

    @property
    def key_type(self) -> str:
        """C's name for the type in which tiles are sorted."""
        return "short" if self.tiles[0] * self.tiles[1] <= SHORT_TILES else "int"


@dataclass(frozen=True)
class Scene:
    """N Gaussians as the kernels read them. Everything is float32 on one device."""

    means: torch.Tensor
    """(N, 3), contiguous as the next three."""
    quats: torch.Tensor
    """(N, 4) w, x, y, z; any length but 0."""
    scales: torch.Tensor
    """(N, 3) in world units."""
    opacities: torch.Tensor
    """(N,) in [0, 1]."""
    sh0: torch.Tensor
    """(N, 3), rows may lie apart."""
    shN: torch.Tensor  # noqa: N815
    """(N, K-1, 3), rows of (K-1) * 3 may lie apart."""
    flags: torch.Tensor | None = None
    """(N,) uint8 as `Selection.flags` gives them, for kinds of frames that are `selected`."""

    @property
    def degree(self) -> int:
        """The highest one that `shN` holds coefficients for."""
        return SH_REST.index(self.shN.shape[1])

    @property
    def layout(self) -> tuple[Any, ...]:
        """All that a graph remembers of the tensors, but for `flags`."""
        return tuple(
            (t.data_ptr(), t.shape, t.stride())
            for name, t in vars(self).items()
            if name != "flags"
        )


def draw(
    kind: GraphKey, scene: Scene, parameters: torch.Tensor, gsplat: Any, own: Launcher
) -> None:
    """Draw a frame of a scene that is not empty.

    Args:
        kind: sizes and modes.
        scene: what to draw.
        parameters: a `Parameters` on the device, as float32: camera and targets.
        gsplat: its compiled module.
        own: the kernels of frame.cu for `kind.key_type`.
    """
    n = len(scene.means)
    slots = kind.slots
    device = scene.means.device
    columns, rows = kind.tiles
    antialiased = kind.antialiased and kind.by_density

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    opacities = scene.opacities
    scales = scene.scales
    flags: Any = scene.flags if kind.selected else _NULL
    if kind.selected or kind.scaled or not kind.by_density:
        opacities = new(n)
        scales = new(n, 3) if kind.scaled else scene.scales
        own.launch(
            "choose",
            blocks(n, 256),
            256,
            _int(n),
            parameters,
            scene.opacities,
            scene.scales,
            flags,
            _int(not kind.by_density),
            opacities,
            scales if kind.scaled else _NULL,
        )
    radii, means2d, depths, conics, compensations = (
        gsplat.projection_ewa_3dgs_fused_fwd(
            scene.means,
            None,
            scene.quats,
            scales,
            opacities,
            parameters[:16].view(1, 4, 4),
            parameters[16:25].view(1, 3, 3),
            kind.width,
            kind.height,
            EPS_2D,
            kind.near,
            kind.far,
            0.0,
            antialiased,
            getattr(gsplat.CameraModelType, kind.model.upper()),
        )
    )
    footprints = new(n, 8)
    keys = new(n)
    counts = new(n, dtype=torch.int64)
    colors = new(n, 4)
    plain = kind.paint == "color" and not kind.selected
    if plain:
        more = ()
    else:
        more = (
            _int(list(PAINTS).index(kind.paint)),
            _int(kind.model == "ortho"),
            _int(kind.width),
            _int(kind.height),
            flags,
            scene.quats,
            scene.scales,
        )
    degree = kind.degree if PAINTS[kind.paint].has_own_colors else 0
    own.launch(
        "shade" if plain else "shade_as",
        blocks(n, 128),
        128,
        _int(n),
        parameters,
        scene.means,
        opacities,
        compensations if antialiased else _NULL,
        scene.sh0,
        _long(scene.sh0.stride(0)),
        scene.shN,
        _long(scene.shN.stride(0)),
        _int(degree),
        radii,
        means2d,
        conics,
        depths,
        _int(columns),
        _int(rows),
        footprints,
        keys,
        counts,
        colors,
        *more,
    )
    del (
        radii,
        depths,
        compensations,
    )  # what is not needed again makes room for what comes
    surfaces = None
    if PAINTS[kind.paint].composition == "nearest":
        surfaces = new(n, BODY_FLOATS)
        own.launch(
            "bodies",
            blocks(n, 256),
            256,
            _int(n),
            parameters,
            scene.means,
            scene.quats,
            scales,
            counts,
            _int(MODELS.index(kind.model)),
            _int(kind.width),
            _int(kind.height),
            _float(EPS_2D),
            surfaces,
        )
    del means2d, conics
    order = torch.sort(
        keys, stable=True
    ).indices  # equal depths stay in the Gaussians' order, as in gsplat
    del keys
    sorted_counts = counts.index_select(0, order)
    del counts
    ends = sorted_counts.cumsum(0)
    # A part's list replaces the pairs of the part before.
    most = 64 * blocks(blocks(slots, blocks(slots, PART)), 64)
    parts = blocks(slots, most)
    tiles = new(slots, dtype=_KEY_TYPES[kind.key_type])
    pairs = new(slots + most, dtype=torch.int32)
    ids = pairs[:slots]
    gaussians = pairs[most:]
    own.launch(
        "fill",
        blocks(max(n, slots), 256),
        256,
        _int(n),
        _int(slots),
        order,
        sorted_counts,
        ends,
        footprints,
        _int(columns),
        tiles,
        gaussians,
    )
    del order, sorted_counts
    starts = new(
        parts, columns * rows + 1, dtype=torch.int32
    )  # and one more, which ends the last tile
    for part in range(parts):
        first = part * most
        end = min((part + 1) * most, slots)
        grouped, places = torch.sort(tiles[first:end], stable=True)
        own.launch(
            "gather",
            blocks(end - first, 256),
            256,
            _int(n),
            _int(first),
            _int(end - first),
            _int(columns * rows),
            grouped,
            places,
            gaussians[first:],
            ends,
            parameters,
            ids[first:],
            starts[part],
        )
        del grouped, places
    last = () if surfaces is None else (surfaces, _float(kind.near))
    own.launch(
        PAINTS[kind.paint].cuda_kernel,
        columns * rows,
        256,
        _int(kind.width),
        _int(kind.height),
        _int(columns),
        _int(kind.element_size),
        _int(parts),
        _int(columns * rows + 1),
        starts,
        ids,
        footprints,
        colors,
        parameters,
        *last,
    )


def blocks(threads: int, block: int) -> int:
    """Number of blocks of `block` threads for so many threads."""
    return -(-threads // block)


_int = ctypes.c_int
_long = ctypes.c_longlong
_float = ctypes.c_float
_NULL = ctypes.c_void_p(0)
_KEY_TYPES = {"short": torch.int16, "int": torch.int32}
