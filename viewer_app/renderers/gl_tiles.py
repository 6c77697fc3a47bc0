"""Compositing as gsplat does it: each pixel walks along the list of Gaussians that touch its tile.

The way of software rasterisers, for which setting up a triangle costs more than walking past a Gaussian. The lists
are made on the processor, since GL 3.3 has nothing to make them with. All of gsplat's rules hold, the end of a pixel
*before* the Gaussian that would take its transmittance to 1e-4 or below among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from viewer_app.renderers.gl_compositor import Pass, keep_freed_memory
from viewer_app.renderers.gl_textures import Fields, Layers
from viewer_app.renderers.tile_lists import TILE, Chunks

if TYPE_CHECKING:
    import moderngl

    from viewer_app.renderers.gl_compositor import Stages

LIST_BITS = 12
"""log2 of the entries in a row of the texture that holds the lists; `tile_lists.BUDGET` of them make 512 rows."""
PARTS = 8
"""Outputs of walk.frag: one for each pixel of a fragment, which is 2 pixels wide and 4 high."""


class TileCompositor:
    """See `Compositor`."""

    def __init__(self, ctx: moderngl.Context, stages: Stages, precision: Literal["f4", "f2"]):
        self._ctx = ctx
        self._stages = stages
        self._precision: Literal["f4", "f2"] = precision
        keep_freed_memory()
        self._list_bits = min(LIST_BITS, ctx.info["GL_MAX_TEXTURE_SIZE"].bit_length() - 1)
        self._slot_bits = (ctx.info["GL_MAX_TEXTURE_SIZE"] // 4).bit_length() - 1
        self.projection = Pass(ctx, "fullscreen.vert", "project.frag", "TILES")
        self._gather = Pass(ctx, "fullscreen.vert", "gather.frag")
        self._unfinished = Pass(ctx, "fullscreen.vert", "unfinished.frag")
        self._walks: dict[tuple[str, ...], Pass] = {}
        self._lists = Fields(ctx)
        self._room = 1
        """Entries that the lists' texture holds: it only grows, so that it is seldom made anew."""
        self._projected: Layers | None = None
        self._layers: dict[object, Layers] = {}
        """Of the present picture's size: what it is gathered from and into."""
        self._size = 0, 0
        self._grid = 0, 0
        """Tiles of the picture across and down."""
        self._depth = False

    def reserve(self, columns: int, rows: int) -> moderngl.Framebuffer:
        if self._projected is None or self._projected.size != (columns, rows):
            if self._projected is not None:
                self._projected.release()
            self._projected = Layers(self._ctx, (columns, rows), form=(4, "f4"), light=(4, "u4"), depth=(1, "f4"),
                                     box=(2, "i4"))
        return self._projected.framebuffer

    def begin(self, size: tuple[int, int], depth: bool) -> moderngl.Framebuffer:
        if size != self._size:
            self._release_layers()
        self._size, self._depth = size, depth
        self._grid = -(-size[0] // TILE), -(-size[1] // TILE)
        return self._target("color").framebuffer

    def draw(self, visible: int) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        # Depth takes a walk of its own: there are not more than eight outputs.
        kinds = ["color", "depth"] if self._depth else ["color"]
        chunks = None
        if visible:
            with self._stages("bin"):
                chunks = Chunks(self._boxes(visible), self._grid)
        latest = self._walk_all(chunks, kinds) if chunks is not None else None
        with self._stages("draw"):
            for kind in kinds:
                target = self._target(kind).framebuffer
                target.use()
                if latest is None:
                    target.clear()
                else:
                    self._gather.read(**self._parts(kind, latest).textures)
                    self._gather.set(across=self._grid[0], slot_bits=self._slot_bits)
                    self._gather.fill()
        return self._picture("color"), self._picture("depth") if self._depth else None

    def release(self) -> None:
        self._release_layers()
        self._lists.release()
        for held in (self.projection, self._gather, self._unfinished, self._projected, *self._walks.values()):
            if held is not None:
                held.release()
        self._projected = None
        self._walks.clear()

    def _boxes(self, visible: int) -> np.ndarray:
        """(visible, 2) int32 from the projection, which this waits for; see `Chunks`."""
        assert self._projected is not None
        columns = self._projected.size[0]
        rows = -(-visible // columns)
        boxes = np.empty((rows * columns, 2), np.int32)
        self._projected.framebuffer.read_into(boxes, viewport=(0, 0, columns, rows), components=2, attachment=3,
                                              dtype="i4", alignment=1)
        return boxes[:visible]

    def _walk_all(self, chunks: Chunks, kinds: list[str]) -> int | None:
        """Walk along the lists of every chunk. Returns which of two sets of parts holds the result, if any does."""
        latest = None
        todo = iter(chunks)
        while True:
            with self._stages("bin"):
                lists = next(todo, None)
            if lists is None:
                return latest
            with self._stages("upload"):
                self._room = max(self._room, 1 << (len(lists.entries) - 1).bit_length())
                self._lists.write("lists", lists.entries[:, None], 1 << self._list_bits, self._room)
                self._lists.write("ranges", lists.ranges, 1 << self._list_bits)
            with self._stages("draw"):
                for kind in kinds:
                    self._walk(kind, latest)
            latest = 0 if latest is None else 1 - latest
            if chunks.remaining:
                with self._stages("draw"):
                    unfinished = self._read_unfinished(self._parts("color", latest))
                with self._stages("bin"):
                    chunks.close_tiles(unfinished)

    def _walk(self, kind: str, latest: int | None) -> None:
        assert self._projected is not None
        defines = (*(["DEPTH"] if kind == "depth" else []), *(["RESUME"] if latest is not None else []))
        if defines not in self._walks:
            self._walks[defines] = Pass(self._ctx, "fullscreen.vert", "walk.frag", *defines)
        walk, projected = self._walks[defines], self._projected.textures
        walk.read(lists=self._lists["lists"], ranges=self._lists["ranges"], form=projected["form"],
                  light=projected["light"], **({"depth": projected["depth"]} if kind == "depth" else {}))
        across, down = self._grid
        walk.set(list_bits=self._list_bits, bits=self._projected.size[0].bit_length() - 1, across=across,
                 tiles=across * down, slot_bits=self._slot_bits)
        if latest is not None:
            before = self._parts(kind, latest).textures.values()
            walk.read(5, **{f"before{i}": texture for i, texture in enumerate(before)})
        self._parts(kind, 0 if latest is None else 1 - latest).framebuffer.use()
        walk.fill()

    def _read_unfinished(self, parts: Layers) -> np.ndarray:
        """(rows, columns) bool: tiles where something more can be seen."""
        layer = self._layer("unfinished", self._grid, open=(1, "f1"))
        self._unfinished.read(**parts.textures)
        self._unfinished.set(across=self._grid[0], slot_bits=self._slot_bits)
        layer.framebuffer.use()
        self._unfinished.fill()
        data = layer.framebuffer.read(components=1, alignment=1)
        return np.frombuffer(data, np.uint8).reshape(self._grid[::-1]) > 0

    def _parts(self, kind: str, number: int) -> Layers:
        # Tiles eight in a column, as many columns as can be, and then from the left again (walk.frag).
        columns = -(-self._grid[0] * self._grid[1] // 8)
        most = 1 << self._slot_bits
        size = min(columns, most) * (TILE // 2), -(-columns // most) * 8 * (TILE // 4)
        return self._layer((kind, number), size, **{f"part{i}": (4, "f4") for i in range(PARTS)})

    def _picture(self, kind: str) -> moderngl.Texture:
        return self._target(kind).textures["picture"]

    def _target(self, kind: str) -> Layers:
        return self._layer(kind, self._size, picture=(4, self._precision if kind == "color" else "f4"))

    def _layer(self, key: object, size: tuple[int, int], **formats: tuple[int, str]) -> Layers:
        if key not in self._layers:
            self._layers[key] = Layers(self._ctx, size, **formats)
        return self._layers[key]

    def _release_layers(self) -> None:
        for layer in self._layers.values():
            layer.release()
        self._layers.clear()
