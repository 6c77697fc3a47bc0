"""Compositing as gsplat does it: each pixel walks along the list of its tile's Gaussians.

The way of software rasterisers, for which setting up a triangle costs more than walking
past a Gaussian. The lists are made on the processor, since GL 3.3 has nothing to make
them with. All of gsplat's rules hold, the end of a pixel *before* the Gaussian that would
take its transmittance to 1e-4 or below among them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import moderngl
import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    LIGHT,
    RING_INSIDE,
    RING_PX,
    THINNED,
    RenderOptions,
)
from splatview_viewer.render.gl.passes import (
    ArrayTextures,
    Channels,
    Compositor,
    Pass,
    PassVariants,
    RenderTarget,
    row_bands,
)
from splatview_viewer.render.gl.tile_lists import TILE, Chunks, TileLists
from splatview_viewer.render.paints import PAINTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.gpu.steps import Steps
    from splatview_viewer.render.gl.passes import Formats, Parts, Size

    Area = tuple[int, int, int, int]
    """x, y, width and height in pixels of a target."""
    Channel = Literal["color", "depth"]

LIST_BITS = 12
"""log2 of the entries in a row of the texture that holds the lists; `BUDGET` of them make
512 rows."""
FRAGMENT_PIXELS = 8
"""Outputs of walk.frag: one for each pixel of a fragment, which is 2 pixels wide and 4
high."""
TILE_COST = 32
"""Entries of its list that cost as much as walking through a tile without any."""
_OUTPUTS_X = TILE // 2
_OUTPUTS_Y = 8 * (TILE // 4)
"""Outputs of a walk across and down that eight tiles have, one above the other."""
_PARTS_UNIT = 6
"""First texture unit of the parts that a walk goes on from."""
_PART_FORMATS: Formats = {f"part{i}": (4, "f4") for i in range(FRAGMENT_PIXELS)}
_MALLOC_THRESHOLD = 31 << 20


class _Targets:
    """Targets of the present picture's size, made when they are drawn into."""

    def __init__(self, ctx: moderngl.Context, slot_bits: int) -> None:
        """Start without targets.

        Args:
            ctx: of the targets.
            slot_bits: log2 of the columns of tiles in the outputs of a walk.
        """
        self.grid = 0, 0
        """Tiles of the picture across and down."""
        self.slot_bits = slot_bits
        self._ctx = ctx
        self._size = 0, 0
        self._targets: dict[object, RenderTarget] = {}

    def resize(self, size: Size) -> None:
        """Make targets of another size from now on."""
        if size == self._size:
            return
        self.release()
        self._size = size
        width, height = size
        self.grid = ceil_div(width, TILE), ceil_div(height, TILE)

    def walk_outputs(self, channel: Channel, slot: int) -> RenderTarget:
        """Return the outputs of a walk; each walk goes from one of two slots to the other.

        Tiles lie eight in a column, as many columns as can be, and then from the left
        again (walk.frag).
        """
        across, down = self.grid
        columns = ceil_div(across * down, 8)
        max_columns = 1 << self.slot_bits
        width = min(columns, max_columns) * _OUTPUTS_X
        height = ceil_div(columns, max_columns) * _OUTPUTS_Y
        return self._find((channel, slot), (width, height), **_PART_FORMATS)

    def walked_areas(self, ranges: np.ndarray, entries: int) -> Iterator[Area]:
        """Return parts of the outputs of a walk that take about as long each.

        Args:
            ranges: as of `TileLists`.
            entries: of the lists of all tiles in a part, of which each tile counts
                some for itself.
        """
        across, down = self.grid
        # Where the tiles of each column of the outputs end, in entries of all lists.
        last = np.minimum(np.arange(8, across * down + 8, 8), across * down) - 1
        costs = ranges[last, 1] + TILE_COST * (last + 1)
        max_columns = 1 << self.slot_bits
        column = 0
        while column < len(costs):
            cost_before = costs[column - 1] if column else 0
            end = int(np.searchsorted(costs, cost_before + entries, side="right"))
            strip, first = divmod(column, max_columns)
            end = min(max(end, column + 1), (strip + 1) * max_columns)
            width = end - column
            yield _OUTPUTS_X * first, _OUTPUTS_Y * strip, _OUTPUTS_X * width, _OUTPUTS_Y
            column = end

    def picture(self, channel: Channel) -> RenderTarget:
        """Return the picture, or its depth."""
        return self._find(channel, self._size, picture=(4, "f4"))

    def open_tiles(self) -> RenderTarget:
        """Return the target of which tiles are unfinished, a pixel for each."""
        return self._find("unfinished", self.grid, open=(1, "f1"))

    def _find(
        self, key: object, size: Size, **formats: tuple[int, str]
    ) -> RenderTarget:
        if key not in self._targets:
            self._targets[key] = RenderTarget(self._ctx, size, **formats)
        return self._targets[key]

    def release(self) -> None:
        """Release all targets."""
        for target in self._targets.values():
            target.release()
        self._targets.clear()
        self._size = 0, 0


class _ListTextures:
    """The lists of one chunk of tiles."""

    def __init__(self, ctx: moderngl.Context, bits: int) -> None:
        """Start without lists.

        Args:
            ctx: of the textures.
            bits: log2 of the entries in a row.
        """
        self.bits = bits
        self._ctx = ctx
        self._textures = ArrayTextures(ctx)
        self._capacity = 1
        """Entries that the texture holds: it only grows, so that it is seldom made again."""

    def write_steps(self, lists: TileLists, part_sizes: Parts) -> Steps[None]:
        """Return the steps that write the lists in place of those before."""
        width = 1 << self.bits
        needed = 1 << (len(lists.entries) - 1).bit_length()
        self._capacity = max(self._capacity, needed)
        entries = lists.entries[:, None]
        write = self._textures.write_steps
        yield from write("lists", entries, width, part_sizes, self._capacity)
        yield from write("ranges", lists.ranges, width, part_sizes)

    def __getitem__(self, name: str) -> moderngl.Texture:
        return self._textures[name]

    def release(self) -> None:
        """Release the textures; the next lists make new ones."""
        self._textures.release()
        self._textures = ArrayTextures(self._ctx)
        self._capacity = 1


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
        self.projection = PassVariants(
            ctx, "fullscreen.vert", "project.frag", "TILES", reading="read_floats.glsl"
        )
        self._gather = PassVariants(ctx, "fullscreen.vert", "gather.frag")
        self._unfinished = Pass(ctx, "fullscreen.vert", "unfinished.frag")
        self._walks = PassVariants(ctx, "fullscreen.vert", "walk.frag")
        self._lists = _ListTextures(ctx, min(LIST_BITS, limit.bit_length() - 1))
        self._targets = _Targets(ctx, (limit // 4).bit_length() - 1)
        self._options = RenderOptions()
        self._paint = PAINTS[self._options.paint]
        self._is_nearest = False
        """True for bodies: the nearest surfaces bring their depth along."""
        self._near = 0.0
        self._projected_bits = 0
        """log2 of the projections in a row."""
        self.thinned = ""

    def begin(self, size: Size, options: RenderOptions) -> None:
        self._targets.resize(size)
        self._options = options
        self._paint = PAINTS[options.paint]
        self._is_nearest = self._paint.composition == "nearest"

    def steps(self, visible: int, near: float, part_sizes: Parts) -> Steps[Channels]:
        self._near = near
        self.thinned = ""
        channels: list[Channel] = ["color"]
        if self._options.depth:
            channels.append("depth")
        slot: int | None = None
        if visible:
            boxes = self._read_boxes(visible)
            slot = yield from self._walk_chunks(boxes, channels, part_sizes)
        for channel in channels:
            yield from self._gather_channel(channel, slot, part_sizes)
        depth = None
        if self._options.depth:
            depth = self._targets.picture("depth").textures["picture"]
        return Channels(self._targets.picture("color").textures["picture"], depth)

    def free_pictures(self) -> None:
        """Release the memory that a picture's size takes."""
        self._targets.release()
        self._lists.release()

    def release(self) -> None:
        """Release everything."""
        self._targets.release()
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

    def _walk_chunks(
        self, boxes: np.ndarray, channels: list[Channel], part_sizes: Parts
    ) -> Steps[int | None]:
        """Walk along the lists of all chunks.

        Returns the slot of two whose parts hold the result; None if nothing is drawn.
        """
        if self._is_nearest:
            channels = ["color"]
        # A pixel of these is never finished.
        is_endless = self._is_nearest or self._paint.is_counted
        slot: int | None = None
        chunks = yield partial(Chunks, boxes, self._targets.grid)
        while True:
            lists = yield partial(next, chunks, None)
            if lists is None:
                break
            yield from self._lists.write_steps(lists, part_sizes)
            next_slot = 0 if slot is None else 1 - slot
            areas = list(self._targets.walked_areas(lists.ranges, part_sizes.entries))
            # Depth takes a walk of its own: there are not more than eight outputs.
            for channel in channels:
                for area in areas:
                    self._walk(channel, slot, next_slot, area)
                    yield None
            slot = next_slot
            if chunks.remaining and not is_endless:
                outputs = self._targets.walk_outputs("color", slot)
                is_open = self._read_unfinished(outputs)
                yield partial(chunks.close_tiles, is_open)
        if chunks.is_cut:
            self.thinned = THINNED
        return slot

    def _walk(
        self, channel: Channel, slot: int | None, next_slot: int, area: Area
    ) -> None:
        """Have each pixel walk along its tile's list, from where it came with `slot`.

        Args:
            channel: of the result.
            slot: where the walk before ended; None: this is the first.
            next_slot: holds the result.
            area: the part of the outputs that is drawn.
        """
        assert self._projected is not None
        options = self._options
        paint = self._paint
        defines: list[str] = []
        if channel == "color" or not paint.is_counted:
            # The depth of counts is that of colours.
            defines += paint.compositing_defines
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
        columns, down = self._targets.grid
        walk.set_uniforms(
            z_near=self._near,
            body_sigmas=BODY_SIGMAS,
            ring_px=RING_PX,
            ring_inside=RING_INSIDE,
            point_reach=options.point_reach,
            list_bits=self._lists.bits,
            across=columns,
            tiles=columns * down,
            bits=self._projected_bits,
            slot_bits=self._targets.slot_bits,
        )
        if slot is not None:
            previous = self._targets.walk_outputs(channel, slot).textures.values()
            textures = {f"before{i}": texture for i, texture in enumerate(previous)}
            walk.bind_textures(_PARTS_UNIT, **textures)
        framebuffer = self._targets.walk_outputs(channel, next_slot).framebuffer
        self._draw_area(walk, framebuffer, area)

    def _draw_area(
        self, drawn_pass: Pass, framebuffer: moderngl.Framebuffer, area: Area
    ) -> None:
        """Run a pass for the pixels of a part of a framebuffer."""
        with self._ctx.scope(framebuffer, moderngl.NOTHING):
            framebuffer.viewport = area
            drawn_pass.draw_fullscreen()

    def _read_unfinished(self, outputs: RenderTarget) -> np.ndarray:
        """Return (rows, columns) bool: tiles where something more can be seen."""
        layer = self._targets.open_tiles()
        self._unfinished.bind_textures(**outputs.textures)
        self._unfinished.set_uniforms(
            across=self._targets.grid[0], slot_bits=self._targets.slot_bits
        )
        columns, rows = self._targets.grid
        area = (0, 0, columns, rows)
        self._draw_area(self._unfinished, layer.framebuffer, area)
        data = layer.framebuffer.read(components=1, alignment=1)
        return np.frombuffer(data, np.uint8).reshape(self._targets.grid[::-1]) > 0

    def _gather_channel(
        self, channel: Channel, slot: int | None, part_sizes: Parts
    ) -> Steps[None]:
        """Bring the parts of all pixels together in the target of a channel."""
        target = self._targets.picture(channel).framebuffer
        width, height = target.size
        if slot is None:
            target.clear()
            return
        for first, band_rows in row_bands(height, width, part_sizes.pixels):
            area = (0, first, width, band_rows)
            self._gather_area(channel, slot, target, area)
            yield None

    def _gather_area(
        self,
        channel: Channel,
        slot: int,
        target: moderngl.Framebuffer,
        area: Area,
    ) -> None:
        """Bring the parts of the pixels of an area together."""
        defines = []
        if self._is_nearest:
            defines.append("BODIES")
            if channel == "depth":
                defines.append("DEPTH")
        gather = self._gather(*defines)
        walked: Channel = "color" if self._is_nearest else channel
        gather.bind_textures(**self._targets.walk_outputs(walked, slot).textures)
        gather.set_uniforms(
            across=self._targets.grid[0], slot_bits=self._targets.slot_bits
        )
        if self._is_nearest and self._projected is not None:
            gather.bind_textures(FRAGMENT_PIXELS, **self._projected.textures)
            gather.set_uniforms(
                bits=self._projected_bits,
                body_sigmas=BODY_SIGMAS,
                towards_light=LIGHT,
                ambient=AMBIENT,
            )
        self._draw_area(gather, target, area)
