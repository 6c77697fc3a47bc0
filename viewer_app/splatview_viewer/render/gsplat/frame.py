"""gsplat's picture without a question to the host: a frame is one launch of a CUDA graph.

`gsplat.rasterization` reads the number of (Gaussian, tile) pairs back to the host in the
middle of a frame, and starts some fifteen kernels from Python. Beside a training process,
which shares the GPU by time slices, both cost the trainer more than the drawing itself.
Here the number of slots for pairs is fixed (`drawing`). A frame that needs more slots
says so afterwards and is drawn again:

    device = torch.device("cuda", 0)
    graph = FrameGraph(device, RecordDrawing(device))
    graph.load(FloatScene(means, quats, scales, opacities, colors))
    rgba, depth = graph.render(camera, options)
    event.synchronize()            # showing the picture waits for it anyway
    while graph.overflowed():
        rgba, depth = graph.render(camera, options)
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import torch

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import PAIRS_MAX, THINNED
from splatview_viewer.render.gsplat.parameters import GraphKey, Parameters

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.base import RenderOptions

CAPTURE_AFTER = 3
"""A kind of frame is captured when it is drawn the third time: a scene that changes its
size with every version is never worth a capture, which costs a few frames' time."""
GRAPHS = 8
"""Captured kinds of frames kept. They share one memory pool, which never shrinks: before
more are captured, all are dropped and it is released."""
MAX_KINDS = 4 * GRAPHS
"""Kinds of frames that are counted."""
SPARE = 1 << 21
"""From this many slots on, the memory that frames took before the capture is released
after it."""
IN_FLIGHT = 16
"""Frames whose numbers of pairs may be outstanding at a time."""
_UNKNOWN = -1
_INT64_BYTES = 8


class FrameScene(Protocol):
    """N Gaussians on a GPU, as a `FrameDrawing` reads them."""

    @property
    def count(self) -> int:
        """Return N."""
        ...

    @property
    def degree(self) -> int:
        """Return the highest degree that there are coefficients for."""
        ...

    @property
    def flags(self) -> torch.Tensor | None:
        """(N,) uint8 as `selecting.flags` gives them; None if all are drawn alike."""
        ...

    @property
    def layout(self) -> tuple[Any, ...]:
        """Return all that a graph remembers of the tensors, but for `flags`."""
        ...

    def with_flags(self, flags: torch.Tensor | None) -> Self:
        """Return the same scene with other flags."""
        ...


SceneT = TypeVar("SceneT", bound=FrameScene)
_SceneT_contra = TypeVar("_SceneT_contra", bound=FrameScene, contravariant=True)


class FrameDrawing(Protocol[_SceneT_contra]):
    """A way to draw frames: `drawing.RecordDrawing`, `packed.PackedDrawing`."""

    def set_frame(self, parameters: Parameters, target: torch.Tensor) -> None:
        """Write a frame's parameters to the device, queued on the current stream."""
        ...

    def draw(
        self, kind: GraphKey, scene: _SceneT_contra, parameters: torch.Tensor
    ) -> None:
        """Draw a frame of a scene that is not empty, queued on the current stream.

        Args:
            kind: sizes and modes.
            scene: what to draw.
            parameters: a `Parameters` on the device, as float32: camera and targets.
        """
        ...


class FrameGraph(Generic[SceneT]):
    """Draws one scene at a time, on torch's current stream.

    That is always the same one, never the default, which cannot be captured.
    """

    def __init__(
        self,
        device: torch.device,
        drawing: FrameDrawing[SceneT],
        most_pairs: int = PAIRS_MAX,
    ) -> None:
        self._device = device
        self._drawing = drawing
        self._loaded: SceneT | None = None
        """As `load` got it."""
        self._scene: SceneT | None = None
        """The same with the flags of the selection."""
        self._layout: tuple[Any, ...] = ()
        """Where the scene lies that the graphs were captured with."""
        self._flags_address = 0
        """Where the flags lie that they were captured with."""
        self.capacity = Capacity(most_pairs)
        self._pair_counts = _PairCounts(device)
        with torch.cuda.device(device):
            self._parameters = torch.zeros(
                ctypes.sizeof(Parameters) // 4, device=device
            )
        self._is_judged = True
        """`overflowed` was asked of the last frame."""
        self._stream: torch.cuda.Stream | None = None
        """The stream of the last frame."""
        self.graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        """Captured kinds of frames."""
        self._uses: dict[GraphKey, int] = {}
        """Count of frames by kind, of kinds not captured yet."""
        self._pool: Any = None
        """Memory pool of the graphs."""
        self._has_spare = False
        """Memory is to be released."""
        self.failure = ""
        """Reason why frames of this scene are not captured; "" when they are."""

    @property
    def thinned(self) -> str:
        """Why the last judged frame shows fewer Gaussians than there are, or ""."""
        if self.capacity.full:
            return THINNED
        return ""

    def load(self, scene: SceneT, flags: torch.Tensor | None = None) -> None:
        """Draw this scene from now on; to be called before each frame.

        Nothing is copied: the storage stays until the next `load` or `unload`, and values
        that are written into it, in stream order, show. The same scene again costs
        nothing, and the same storage keeps the graphs.

        Args:
            scene: what to draw.
            flags: (N,) uint8 as `selecting.flags` gives them, in place of
                `RenderOptions.selection`, which is not looked at. None if all are drawn,
                none stands out.
        """
        if scene is not self._loaded:
            layout = scene.layout
            if layout != self._layout:
                self._forget_graphs()
                self.capacity.expect(scene.count)
                self._layout = layout
            self._loaded = scene
            self._scene = scene
        if flags is not None:
            self._expect_flags(flags.data_ptr())
        if self._scene is None or flags is not self._scene.flags:
            self._scene = scene.with_flags(flags)

    def _expect_flags(self, address: int) -> None:
        """Drop the graphs if they were captured with flags that lay elsewhere."""
        if self._flags_address not in (0, address):
            self._drop_graphs()
        self._flags_address = address

    def unload(self) -> None:
        """Let go of the scene's storage, until the next `load`. The graphs stay."""
        self._loaded = None
        self._scene = None

    def render(
        self, camera: Camera, options: RenderOptions, rgba: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queue the drawing of a frame on the current stream of the current GPU.

        The host waits for nothing.

        Args:
            camera: its `model` may be any that gsplat projects: pinhole, ortho, fisheye.
            options: the degree is cut to what the scene has.
            rgba: (H, W, 4) contiguous float32 or float16 on this device to draw into; a
                new float32 tensor otherwise.

        Returns:
            rgba: (H, W, 4) colour, premultiplied, over black, and alpha; and, if
            `options.depth`, the accumulated depth, (H, W) float32. Whole unless
            `overflowed()` says otherwise.
        """
        scene = self._scene
        assert scene is not None
        size = camera.height, camera.width
        if rgba is None:
            rgba = torch.empty((*size, 4), device=self._device)
        depth = None
        if options.depth:
            depth = torch.empty(size, device=self._device)
        self._is_judged = False
        needed = self._pair_counts.begin_frame()
        if scene.count == 0:
            rgba.zero_()
            if depth is not None:
                depth.zero_()
            self._pair_counts.set(0)
            return rgba, depth
        parameters = Parameters.of(camera, options, rgba, depth, needed)
        kind = self._kind_of(camera, options, scene, rgba)
        self._drawing.set_frame(parameters, self._parameters)
        graph = self._find_graph(kind)
        if graph is None:
            self._draw(kind)
        else:
            graph.replay()
        # Once the GPU is at work, for to ask takes as long as to launch.
        self._stream = torch.cuda.current_stream()
        return rgba, depth

    def _kind_of(
        self,
        camera: Camera,
        options: RenderOptions,
        scene: SceneT,
        rgba: torch.Tensor,
    ) -> GraphKey:
        degree = scene.degree
        if options.sh_degree is not None:
            degree = min(options.sh_degree, degree)
        return GraphKey(
            width=camera.width,
            height=camera.height,
            model=camera.model,
            near=float(camera.near),
            far=float(camera.far),
            antialiased=options.mode == "antialiased",
            depth=options.depth,
            degree=degree,
            element_size=rgba.element_size(),
            slots=self.capacity.slots,
            paint=options.paint,
            selected=scene.flags is not None,
            scaled=options.scale != 1.0,
        )

    def overflowed(self) -> bool:
        """Return True if the last frame had too few slots, and so lacks Gaussians.

        Render it again: there are more then. One that needs more than there may be is as
        good as it gets: see `thinned`.

        To be asked when the frame is done (its event was waited for); waits for it
        otherwise.
        """
        if self._is_judged or self._stream is None:
            return False
        pair_count = self._pair_counts.last
        if pair_count == _UNKNOWN:
            self._stream.synchronize()
            pair_count = self._pair_counts.last
        self._is_judged = True
        if self._has_spare:
            # Here the GPU is done: releasing memory waits for it.
            self._has_spare = False
            torch.cuda.empty_cache()
        return self.capacity.record(pair_count)

    def free_graphs(self) -> None:
        """Release what frames were captured with.

        They are captured again when they come often again.
        """
        self._drop_graphs()
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._forget_graphs()
        self._layout = ()
        self.unload()

    def _find_graph(self, kind: GraphKey) -> torch.cuda.CUDAGraph | None:
        """Return the graph for this kind of frame; captured now if it came often enough."""
        if kind in self.graphs:
            return self.graphs[kind]
        uses = self._uses.pop(kind, 0) + 1
        if len(self._uses) >= MAX_KINDS:
            self._uses.clear()
        self._uses[kind] = uses
        if uses < CAPTURE_AFTER or self.failure:
            return None
        if len(self.graphs) >= GRAPHS:
            self._drop_graphs()
        try:
            graph = self._capture(kind)
        except (RuntimeError, RendererError) as e:
            if str(e):
                message = str(e).splitlines()[0]
            else:
                message = type(e).__name__
            self.failure = f"no CUDA graph: {message}"
            if not self.graphs:
                # torch takes no pool back that lost its last graph.
                self._pool = None
            return None
        self._uses.pop(kind, None)
        self._has_spare = self._has_spare or kind.slots >= SPARE
        self.graphs[kind] = graph
        return graph

    def _capture(self, kind: GraphKey) -> torch.cuda.CUDAGraph:
        """Return the graph of a kind of frame.

        Without `torch.cuda.graph`: that collects garbage, waits for the device and
        empties the allocator's cache.
        """
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            self._draw(kind)
        except BaseException:
            # Its error names the consequence; the cause is on its way.
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        return graph

    def _draw(self, kind: GraphKey) -> None:
        assert self._scene is not None
        self._drawing.draw(kind, self._scene, self._parameters)

    def _forget_graphs(self) -> None:
        """Drop the graphs, and what is known of the kinds of frames."""
        self._drop_graphs()
        self._uses.clear()
        self.failure = ""

    def _drop_graphs(self) -> None:
        if not self.graphs:
            return
        if self._stream is not None:
            # A graph that may still run is not to be destroyed.
            self._stream.synchronize()
        self.graphs.clear()
        self._pool = None
        with torch.cuda.device(self._device):
            # torch keeps a pool without graphs until then.
            torch.cuda.empty_cache()


class _PairCounts:
    """Numbers of pairs that frames needed, written by the GPU to pinned host memory."""

    def __init__(self, device: torch.device) -> None:
        with torch.cuda.device(device):
            self._counts = torch.full(
                (IN_FLIGHT,), _UNKNOWN, dtype=torch.int64, pin_memory=True
            )
        self._array = self._counts.numpy()
        self._address = self._counts.data_ptr()
        self._frames = 0

    @property
    def _index(self) -> int:
        return self._frames % IN_FLIGHT

    def begin_frame(self) -> int:
        """Begin another frame; return the address to which its number is written."""
        self._frames += 1
        self.set(_UNKNOWN)
        return self._address + _INT64_BYTES * self._index

    def set(self, count: int) -> None:
        """Set the number of the last frame."""
        self._array[self._index] = count

    @property
    def last(self) -> int:
        """The number of the last frame; `_UNKNOWN` before the GPU has written it."""
        return int(self._array[self._index])


class Capacity:
    """Number of slots for pairs of Gaussian and tile.

    It is a quarter more than the frames of late needed, up to a limit. It grows at once,
    in steps that are at most an eighth; it shrinks when 120 frames in a row needed less
    than 60 %.
    """

    FIRST = 1 << 16
    FRAMES = 120

    def __init__(self, limit: int = PAIRS_MAX) -> None:
        self.slots = self.FIRST
        self.needed_slots = 0
        """Pairs that the last frame needed."""
        self._limit = limit
        self._peak = 0
        """The most pairs that one of the last frames needed."""
        self._frames = 0

    @property
    def full(self) -> bool:
        """True if the last frame lacks Gaussians, and no later one gets more slots.

        The farthest are left out.
        """
        return self.needed_slots > self.slots == self._limit

    def expect(self, gaussians: int) -> None:
        """Prepare for a scene of this many Gaussians: a first guess, if it is more."""
        self.slots = max(self.slots, self.rounded(gaussians * 3 // 2))

    def record(self, needed: int) -> bool:
        """Take note of the pairs that a frame needed.

        Returns True if it had too few slots, and there are more now.
        """
        self.needed_slots = needed
        if needed > self.slots:
            previous = self.slots
            self.slots = self.rounded(needed * 5 // 4)
            self._start_over()
            return self.slots > previous
        self._peak = max(self._peak, needed)
        self._frames += 1
        if self._frames >= self.FRAMES:
            if self._peak < 0.6 * self.slots:
                self.slots = self.rounded(self._peak * 5 // 4)
            self._start_over()
        return False

    def _start_over(self) -> None:
        self._peak = 0
        self._frames = 0

    def rounded(self, slots: int) -> int:
        """Round up to one of eight steps per power of two, within the limit.

        So there are few different numbers and few graphs.
        """
        slots = max(slots, self.FIRST)
        step = 1 << max(slots.bit_length() - 4, 0)
        return min(ceil_div(slots, step) * step, self._limit)
