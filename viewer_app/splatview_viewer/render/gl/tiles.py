"""Compositing as gsplat does it: each pixel walks along the list of Gaussians that touch its tile.

The way of software rasterisers, for which setting up a triangle costs more than walking past a Gaussian. The lists
are made on the processor, since GL 3.3 has nothing to make them with. All of gsplat's rules hold, the end of a pixel
*before* the Gaussian that would take its transmittance to 1e-4 or below among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    LIGHT,
    LISTED_MAX,
    PAINTS,
    RING_INSIDE,
    RING_PX,
    THINNED,
    RenderOptions,
)
from splatview_viewer.render.gl.passes import (
    Compositor,
    FieldTextures,
    LayerTextures,
    Pass,
    Passes,
    stable_order,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

TILE = 8
"""Side in pixels; shaders/project.frag and walk.frag know it too."""
BUDGET = 1 << 21
"""Entries of all lists together in one chunk: what bounds the memory, some 60 MB."""
LIST_BITS = 12
"""log2 of the entries in a row of the texture that holds the lists; `BUDGET` of them make 512 rows."""
PARTS = 8
"""Outputs of walk.frag: one for each pixel of a fragment, which is 2 pixels wide and 4 high."""


class TileCompositor(Compositor):
    """As `QuadCompositor`."""

    formats: ClassVar[dict[str, tuple[int, str]]] = {
        "form": (4, "f4"),
        "light": (4, "u4"),
        "depth": (1, "f4"),
        "box": (2, "i4"),
    }

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        # glibc gives blocks above a threshold back to the system, and each new array costs page faults then, which take
        # longer than the arithmetic. Once such a block was freed the threshold is its size, at most 32 MB (mallopt(3),
        # M_MMAP_THRESHOLD). Without effect on other systems.
        np.empty(31 << 20, np.uint8)
        self._list_bits = min(
            LIST_BITS, ctx.info["GL_MAX_TEXTURE_SIZE"].bit_length() - 1
        )
        self._slot_bits = (ctx.info["GL_MAX_TEXTURE_SIZE"] // 4).bit_length() - 1
        self.projection = Passes(ctx, "fullscreen.vert", "project.frag", "TILES")
        self._gather = Passes(ctx, "fullscreen.vert", "gather.frag")
        self._unfinished = Pass(ctx, "fullscreen.vert", "unfinished.frag")
        self._walks = Passes(ctx, "fullscreen.vert", "walk.frag")
        self._lists = FieldTextures(ctx)
        self._room = 1
        """Entries that the lists' texture holds: it only grows, so that it is seldom made anew."""
        self._layers: dict[object, LayerTextures] = {}
        """Targets of the present picture's size, for gathering."""
        self._size = 0, 0
        self._grid = 0, 0
        """Tiles of the picture across and down."""
        self._options = RenderOptions()
        self._near = 0.0
        self.thinned = ""

    def begin(
        self, size: tuple[int, int], options: RenderOptions
    ) -> moderngl.Framebuffer:
        if size != self._size:
            self._release_layers()
        self._size = size
        self._options = options
        self._grid = -(-size[0] // TILE), -(-size[1] // TILE)
        return self._target("color").framebuffer

    def draw(
        self, visible: int, near: float
    ) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        options = self._options
        self._near = near
        self.thinned = ""
        paint = PAINTS[options.paint]
        bodies = paint.composition == "nearest"
        # Depth takes a walk of its own: there are not more than eight outputs. The nearest surfaces bring theirs along.
        pictures = ["color", "depth"] if options.depth else ["color"]
        latest: int | None = (
            None  # which of two sets of parts holds the result, if any does
        )
        if visible:
            assert self._projected is not None
            columns = self._projected.size[0]
            rows = -(-visible // columns)
            boxes = np.empty((rows * columns, 2), np.int32)
            self._projected.framebuffer.read_into(
                boxes,
                viewport=(0, 0, columns, rows),
                components=2,
                attachment=3,
                dtype="i4",
                alignment=1,
            )
            chunks = Chunks(boxes[:visible], self._grid)
            for entries, ranges in chunks:
                self._room = max(self._room, 1 << (len(entries) - 1).bit_length())
                self._lists.write(
                    "lists", entries[:, None], 1 << self._list_bits, self._room
                )
                self._lists.write("ranges", ranges, 1 << self._list_bits)
                for kind in pictures[:1] if bodies else pictures:
                    self._walk(kind, latest)
                latest = 0 if latest is None else 1 - latest
                if chunks.remaining and not bodies and paint.composition != "counted":
                    chunks.close_tiles(
                        self._read_unfinished(self._parts("color", latest))
                    )
            self.thinned = THINNED if chunks.lacking else ""
        for kind in pictures:
            target = self._target(kind).framebuffer
            target.use()
            if latest is None:
                target.clear()
                continue
            gather = self._gather(
                *(["BODIES"] if bodies else []),
                *(["DEPTH"] if bodies and kind == "depth" else []),
            )
            gather.read(**self._parts("color" if bodies else kind, latest).textures)
            gather.set(across=self._grid[0], slot_bits=self._slot_bits)
            if bodies and self._projected is not None:
                gather.read(PARTS, **self._projected.textures)
                gather.set(
                    bits=self._projected.size[0].bit_length() - 1,
                    body_sigmas=BODY_SIGMAS,
                    towards_light=LIGHT,
                    ambient=AMBIENT,
                )
            gather.fill()
        depth = self._target("depth").textures["picture"] if options.depth else None
        return self._target("color").textures["picture"], depth

    def rest(self) -> None:
        self._release_layers()
        self._size = 0, 0
        self._lists.release()
        self._lists = FieldTextures(self._ctx)
        self._room = 1

    def release(self) -> None:
        self._release_layers()
        self._lists.release()
        for held in (
            self.projection,
            self._gather,
            self._unfinished,
            self._projected,
            self._walks,
        ):
            if held is not None:
                held.release()
        self._projected = None

    def _walk(self, kind: str, latest: int | None) -> None:
        assert self._projected is not None
        defines = (
            *(["DEPTH"] if kind == "depth" else []),
            *(["RESUME"] if latest is not None else []),
        )
        options = self._options
        projected = self._projected.textures
        if (
            PAINTS[options.paint].composition != "counted" or kind == "color"
        ):  # its depth is that of colour
            defines = *PAINTS[options.paint].defines, *defines
        walk = self._walks(*(name for name in defines if name != "NORMALS"))
        walk.read(lists=self._lists["lists"], ranges=self._lists["ranges"], **projected)
        across, down = self._grid
        walk.set(
            z_near=self._near,
            body_sigmas=BODY_SIGMAS,
            ring_px=RING_PX,
            ring_inside=RING_INSIDE,
            point_reach=options.point_reach,
            list_bits=self._list_bits,
            across=across,
            tiles=across * down,
            bits=self._projected.size[0].bit_length() - 1,
            slot_bits=self._slot_bits,
        )
        if latest is not None:
            before = self._parts(kind, latest).textures.values()
            walk.read(6, **{f"before{i}": texture for i, texture in enumerate(before)})
        self._parts(kind, 0 if latest is None else 1 - latest).framebuffer.use()
        walk.fill()

    def _read_unfinished(self, parts: LayerTextures) -> np.ndarray:
        """(rows, columns) bool: tiles where something more can be seen."""
        layer = self._layer("unfinished", self._grid, open=(1, "f1"))
        self._unfinished.read(**parts.textures)
        self._unfinished.set(across=self._grid[0], slot_bits=self._slot_bits)
        layer.framebuffer.use()
        self._unfinished.fill()
        data = layer.framebuffer.read(components=1, alignment=1)
        return np.frombuffer(data, np.uint8).reshape(self._grid[::-1]) > 0

    def _parts(self, kind: str, number: int) -> LayerTextures:
        # Tiles eight in a column, as many columns as can be, and then from the left again (walk.frag).
        columns = -(-self._grid[0] * self._grid[1] // 8)
        most = 1 << self._slot_bits
        size = min(columns, most) * (TILE // 2), -(-columns // most) * 8 * (TILE // 4)
        return self._layer(
            (kind, number), size, **{f"part{i}": (4, "f4") for i in range(PARTS)}
        )

    def _target(self, kind: str) -> LayerTextures:
        return self._layer(kind, self._size, picture=(4, "f4"))

    def _layer(
        self, key: object, size: tuple[int, int], **formats: tuple[int, str]
    ) -> LayerTextures:
        if key not in self._layers:
            self._layers[key] = LayerTextures(self._ctx, size, **formats)
        return self._layers[key]

    def _release_layers(self) -> None:
        for layer in self._layers.values():
            layer.release()
        self._layers.clear()


class Chunks:
    """Goes through the Gaussians from front to back in chunks of at most `BUDGET` entries.

    Iterate over it: each chunk is (E,) int32 places in drawing order, for each tile those of the Gaussians that touch
    it, nearest first; and (tiles, 2) int32 where a tile's list starts and ends, tiles row by row. Before the next chunk
    is asked for, `close_tiles` may say where nothing more can be seen. Ends after `most` entries, or those of one more
    Gaussian, whatever is left.
    """

    def __init__(
        self, boxes: np.ndarray, grid: tuple[int, int], most: int = LISTED_MAX
    ):
        """`boxes` (N, 2) int32, in drawing order: the first tile's number, row by row, and width + (height << 16) in
        tiles, 0 where nothing shows. `grid`: tiles across and down.
        """
        self.lacking = False
        """True if it has ended before everything was in a chunk."""
        self._left = most
        self._columns, self._rows = grid
        self._held = np.stack(
            [
                np.arange(len(boxes), dtype=np.int32),
                boxes[:, 0],
                boxes[:, 1] & 0xFFFF,
                boxes[:, 1] >> 16,
            ]
        )
        """(4, M) int32: place in drawing order, first tile, width and height of those that no chunk has held yet."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while n := self.remaining:
            held = self._held
            total = np.cumsum(held[2] * held[3], dtype=np.int64)
            budget = min(BUDGET, self._left)
            if total[-1] > 0 and budget <= 0:
                self.lacking = True
                return
            if (
                total[-1] > budget
            ):  # one Gaussian at least: it has no more entries than the picture has tiles
                n = max(int(np.searchsorted(total, budget, side="right")), 1)
            self._held = held[:, n:]
            self._left -= int(total[n - 1])
            if total[n - 1]:
                yield self._lists(*held[:, :n])

    @property
    def remaining(self) -> int:
        """Gaussians that no chunk has held yet."""
        return self._held.shape[1]

    def close_tiles(self, unfinished: np.ndarray) -> None:
        """Forget Gaussians that touch only tiles where `unfinished` (rows, columns), bool, is False."""
        table = np.zeros(
            (self._rows + 1, self._columns + 1), np.int32
        )  # sums over everything left of and above
        np.cumsum(
            np.cumsum(unfinished, axis=0, dtype=np.int32), axis=1, out=table[1:, 1:]
        )
        _, first, widths, heights = self._held
        y0, x0 = np.divmod(first, self._columns)
        y1 = y0 + heights
        x1 = x0 + widths
        self._held = self._held[
            :,
            np.flatnonzero(
                table[y1, x1] - table[y0, x1] - table[y1, x0] + table[y0, x0]
            ),
        ]

    def _lists(
        self,
        rank: np.ndarray,
        first: np.ndarray,
        widths: np.ndarray,
        heights: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        columns = self._columns
        tiles = self._columns * self._rows
        # First every row of tiles that a box has, then every tile of such a row. The tile's number is what its row
        # of tiles starts with plus how far along it is; repeating (start - place) and adding places gives that.
        owner = np.repeat(np.arange(len(rank), dtype=np.int32), heights)
        begin = (first - columns * _starts(heights)).take(owner)
        begin += np.arange(0, len(owner) * columns, columns, dtype=np.int32)
        widths = widths.take(owner)
        pairs = np.stack([begin - _starts(widths), rank.take(owner)], axis=1)
        # Both at once: as one number of 64 bits.
        pairs = (
            np.repeat(pairs.view(np.int64)[:, 0], widths).view(np.int32).reshape(-1, 2)
        )
        tile = pairs[:, 0] + np.arange(len(pairs), dtype=np.int32)
        entries = pairs[:, 1].take(stable_order(tile))
        ranges = np.empty((tiles, 2), np.int32)
        count = np.bincount(tile, minlength=tiles)
        np.cumsum(count, out=ranges[:, 1])
        np.subtract(ranges[:, 1], count, out=ranges[:, 0])
        return entries, ranges


def _starts(counts: np.ndarray) -> np.ndarray:
    """Begin of each of several consecutive runs."""
    return np.cumsum(counts, dtype=np.int32) - counts
