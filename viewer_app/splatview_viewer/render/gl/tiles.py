"""Compositing as gsplat does it: each pixel walks along the list of its tile's Gaussians.

The way of software rasterisers, for which setting up a triangle costs more than walking
past a Gaussian. The lists are made on the processor, since GL 3.3 has nothing to make
them with. All of gsplat's rules hold, the end of a pixel *before* the Gaussian that would
take its transmittance to 1e-4 or below among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    LIGHT,
    PAINTS,
    RING_INSIDE,
    RING_PX,
    THINNED,
    RenderOptions,
)
from splatview_viewer.render.gl.passes import (
    ArrayTextures,
    Compositor,
    Pass,
    PassVariants,
    RenderTarget,
)
from splatview_viewer.render.gl.tile_lists import TILE, Chunks, TileLists

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.render.gl.passes import Formats, Size

    Channel = Literal["color", "depth"]

LIST_BITS = 12
"""log2 of the entries in a row of the texture that holds the lists; `BUDGET` of them make
512 rows."""
PARTS = 8
"""Outputs of walk.frag: one for each pixel of a fragment, which is 2 pixels wide and 4
high."""
_PARTS_UNIT = 6
"""First texture unit of the parts that a walk goes on from."""
_PART_FORMATS: Formats = {f"part{i}": (4, "f4") for i in range(PARTS)}
_MALLOC_THRESHOLD = 31 << 20


class TileCompositor(Compositor):
    """Composites as the module says. Callers use it like a `QuadCompositor`."""

    formats: ClassVar[Formats] = {
        "form": (4, "f4"),
        "light": (4, "u4"),
        "depth": (1, "f4"),
        "box": (2, "i4"),
    }

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        # glibc gives blocks above a threshold back to the system, and each new array
        # costs page faults then, which take longer than the arithmetic. Once such a block
        # was freed the threshold is its size, at most 32 MB (mallopt(3),
        # M_MMAP_THRESHOLD). Without effect on other systems.
        np.empty(_MALLOC_THRESHOLD, np.uint8)
        limit = ctx.info["GL_MAX_TEXTURE_SIZE"]
        self._list_bits = min(LIST_BITS, limit.bit_length() - 1)
        self._slot_bits = (limit // 4).bit_length() - 1
        self.projection = PassVariants(ctx, "fullscreen.vert", "project.frag", "TILES")
        self._gather = PassVariants(ctx, "fullscreen.vert", "gather.frag")
        self._unfinished = Pass(ctx, "fullscreen.vert", "unfinished.frag")
        self._walks = PassVariants(ctx, "fullscreen.vert", "walk.frag")
        self._lists = ArrayTextures(ctx)
        self._list_capacity = 1
        """Entries that the lists' texture holds: it only grows, so that it is seldom made
        again."""
        self._layers: dict[object, RenderTarget] = {}
        """Targets of the present picture's size, for gathering."""
        self._size = 0, 0
        self._grid = 0, 0
        """Tiles of the picture across and down."""
        self._options = RenderOptions()
        self._paint = PAINTS[self._options.paint]
        self._is_nearest = False
        """True for bodies: the nearest surfaces bring their depth along."""
        self._near = 0.0
        self._projected_bits = 0
        """log2 of the projections in a row."""
        self.thinned = ""

    def begin(self, size: Size, options: RenderOptions) -> moderngl.Framebuffer:
        """Make room for a picture, as `QuadCompositor.begin`."""
        if size != self._size:
            self._release_layers()
        self._size = size
        self._options = options
        self._paint = PAINTS[options.paint]
        self._is_nearest = self._paint.composition == "nearest"
        width, height = size
        self._grid = ceil_div(width, TILE), ceil_div(height, TILE)
        return self._target("color").framebuffer

    def draw(
        self, visible: int, near: float
    ) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        """Composite the first `visible` projections, as `QuadCompositor.draw`."""
        self._near = near
        self.thinned = ""
        channels: list[Channel] = ["color"]
        if self._options.depth:
            channels.append("depth")
        slot: int | None = None
        if visible:
            slot = self._walk_chunks(self._read_boxes(visible), channels)
        for channel in channels:
            self._gather_channel(channel, slot)
        depth = None
        if self._options.depth:
            depth = self._target("depth").textures["picture"]
        return self._target("color").textures["picture"], depth

    def free_pictures(self) -> None:
        """Release the memory that a picture's size takes."""
        self._release_layers()
        self._size = 0, 0
        self._lists.release()
        self._lists = ArrayTextures(self._ctx)
        self._list_capacity = 1

    def release(self) -> None:
        """Release everything."""
        self._release_layers()
        self._lists.release()
        for resource in (self.projection, self._gather, self._unfinished, self._walks):
            resource.release()
        if self._projected is not None:
            self._projected.release()
            self._projected = None

    # -- passes ---------------------------------------------------------------------------

    def _read_boxes(self, visible: int) -> np.ndarray:
        """Return the tiles that each projection touches, (visible, 2) int32.

        As `Chunks` takes them.
        """
        assert self._projected is not None
        columns, _ = self._projected.size
        self._projected_bits = columns.bit_length() - 1
        rows = ceil_div(visible, columns)
        boxes = np.empty((rows * columns, 2), np.int32)
        self._projected.framebuffer.read_into(
            boxes,
            viewport=(0, 0, columns, rows),
            components=2,
            attachment=list(self.formats).index("box"),
            dtype="i4",
            alignment=1,
        )
        return boxes[:visible]

    def _walk_chunks(self, boxes: np.ndarray, channels: list[Channel]) -> int | None:
        """Walk along the lists of all chunks.

        Returns the slot of two whose parts hold the result; None if nothing is drawn.
        """
        if self._is_nearest:
            channels = ["color"]
        # A pixel of these is never finished.
        is_endless = self._is_nearest or self._paint.composition == "counted"
        slot: int | None = None
        chunks = Chunks(boxes, self._grid)
        for lists in chunks:
            self._upload(lists)
            next_slot = 0 if slot is None else 1 - slot
            # Depth takes a walk of its own: there are not more than eight outputs.
            for channel in channels:
                self._walk(channel, slot, next_slot)
            slot = next_slot
            if chunks.remaining and not is_endless:
                parts = self._parts("color", slot)
                chunks.close_tiles(self._read_unfinished(parts))
        if chunks.is_cut:
            self.thinned = THINNED
        return slot

    def _upload(self, lists: TileLists) -> None:
        """Write the lists of one chunk into textures."""
        width = 1 << self._list_bits
        needed = 1 << (len(lists.entries) - 1).bit_length()
        self._list_capacity = max(self._list_capacity, needed)
        self._lists.write("lists", lists.entries[:, None], width, self._list_capacity)
        self._lists.write("ranges", lists.ranges, width)

    def _walk(self, channel: Channel, slot: int | None, next_slot: int) -> None:
        """Have each pixel walk along its tile's list, from where it came with `slot`.

        next_slot: holds the result.
        """
        assert self._projected is not None
        options = self._options
        paint = self._paint
        defines: list[str] = []
        if channel == "color" or paint.composition != "counted":
            # The depth of counts is that of colours. Normals are colours here.
            defines += [name for name in paint.defines if name != "NORMALS"]
        if channel == "depth":
            defines.append("DEPTH")
        if slot is not None:
            defines.append("RESUME")
        walk = self._walks(*defines)
        walk.bind_textures(
            lists=self._lists["lists"],
            ranges=self._lists["ranges"],
            **self._projected.textures,
        )
        across, down = self._grid
        walk.set_uniforms(
            z_near=self._near,
            body_sigmas=BODY_SIGMAS,
            ring_px=RING_PX,
            ring_inside=RING_INSIDE,
            point_reach=options.point_reach,
            list_bits=self._list_bits,
            across=across,
            tiles=across * down,
            bits=self._projected_bits,
            slot_bits=self._slot_bits,
        )
        if slot is not None:
            previous = self._parts(channel, slot).textures.values()
            textures = {f"before{i}": texture for i, texture in enumerate(previous)}
            walk.bind_textures(_PARTS_UNIT, **textures)
        self._parts(channel, next_slot).framebuffer.use()
        walk.draw_fullscreen()

    def _read_unfinished(self, parts: RenderTarget) -> np.ndarray:
        """Return (rows, columns) bool: tiles where something more can be seen."""
        layer = self._layer("unfinished", self._grid, open=(1, "f1"))
        self._unfinished.bind_textures(**parts.textures)
        self._unfinished.set_uniforms(across=self._grid[0], slot_bits=self._slot_bits)
        layer.framebuffer.use()
        self._unfinished.draw_fullscreen()
        data = layer.framebuffer.read(components=1, alignment=1)
        return np.frombuffer(data, np.uint8).reshape(self._grid[::-1]) > 0

    def _gather_channel(self, channel: Channel, slot: int | None) -> None:
        """Bring the parts of all pixels together in the target of a channel."""
        target = self._target(channel).framebuffer
        target.use()
        if slot is None:
            target.clear()
            return
        defines = []
        if self._is_nearest:
            defines.append("BODIES")
            if channel == "depth":
                defines.append("DEPTH")
        gather = self._gather(*defines)
        walked: Channel = "color" if self._is_nearest else channel
        gather.bind_textures(**self._parts(walked, slot).textures)
        gather.set_uniforms(across=self._grid[0], slot_bits=self._slot_bits)
        if self._is_nearest and self._projected is not None:
            gather.bind_textures(PARTS, **self._projected.textures)
            gather.set_uniforms(
                bits=self._projected_bits,
                body_sigmas=BODY_SIGMAS,
                towards_light=LIGHT,
                ambient=AMBIENT,
            )
        gather.draw_fullscreen()

    # -- textures -------------------------------------------------------------------------

    def _parts(self, channel: Channel, slot: int) -> RenderTarget:
        """Return the outputs of a walk; each walk goes from one of two slots to the other.

        Tiles lie eight in a column, as many columns as can be, and then from the left
        again (walk.frag).
        """
        across, down = self._grid
        columns = ceil_div(across * down, 8)
        max_columns = 1 << self._slot_bits
        width = min(columns, max_columns) * (TILE // 2)
        height = ceil_div(columns, max_columns) * 8 * (TILE // 4)
        return self._layer((channel, slot), (width, height), **_PART_FORMATS)

    def _target(self, channel: Channel) -> RenderTarget:
        return self._layer(channel, self._size, picture=(4, "f4"))

    def _layer(
        self, key: object, size: Size, **formats: tuple[int, str]
    ) -> RenderTarget:
        if key not in self._layers:
            self._layers[key] = RenderTarget(self._ctx, size, **formats)
        return self._layers[key]

    def _release_layers(self) -> None:
        for layer in self._layers.values():
            layer.release()
        self._layers.clear()
