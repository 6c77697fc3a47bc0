"""Textures of pictures that a function has drawn on a GPU.

What comes is copied there by OpenGL alone, since the slot that it lies in is written again
soon: no byte passes the processor.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_ipc.gl.base import fragment_head
from splatview_ipc.gl.glapi import GL
from splatview_ipc.gl.probe import AutoBridge
from splatview_ipc.gl.sources import VERTEX

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import DeviceTensor, RemoteTensor, StreamFrame
    from splatview_ipc.gl.base import PixelSource

_COPY = """
out vec4 f_color;
void main() {
    vec4 color = stored(ivec2(gl_FragCoord.xy));
#if CHANNELS == 1
    f_color = vec4(color.r);
#elif CHANNELS == 4
    f_color = color;
#else
    f_color = vec4(color.rgb, 1.0);
#endif
}
"""
_COLOR = True, True, True, True
_ALPHA = False, False, False, True


class PictureTextures(NamedTuple):
    """A picture on the GPU, row 0 at the top."""

    color: moderngl.Texture
    """RGBA of 8 bits, multiplied by alpha."""
    depth: moderngl.Texture | None
    """float32, camera z."""

    def depth_at(self, column: int, row: int) -> float:
        """Return the depth of a pixel, NaN without any. Waits for the GPU."""
        if self.depth is None:
            return float("nan")
        framebuffer = self.depth.ctx.framebuffer([self.depth])
        try:
            pixel = framebuffer.read((column, row, 1, 1), components=1, dtype="f4")
        finally:
            framebuffer.release()
        return float(np.frombuffer(pixel, np.float32)[0])


class _WatchedCopy(NamedTuple):
    """A copy that OpenGL may still be making."""

    fence: int
    """Is passed once it is made."""
    intact: Callable[[], bool]
    """As `StreamFrame.intact`."""
    on_torn: Callable[[], None]


class TextureStore:
    """Copies frames on a GPU to textures, and uses textures again.

    Belongs to the thread that holds the context.
    """

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._bridges: dict[str, AutoBridge] = {}
        """The ways of tensors to OpenGL, by their names."""
        self._programs: dict[tuple[str, ...], moderngl.VertexArray] = {}
        """By the defines of what they read."""
        self._idle: list[PictureTextures] = []
        self._all: list[PictureTextures] = []
        self._watched: deque[_WatchedCopy] = deque()
        """The oldest one first."""

    def copy(self, frame: StreamFrame) -> PictureTextures:
        """Return a copy of a frame of kind picture, which must have a colour.

        It is made in OpenGL's order, and whole unless `watch` says otherwise, or after
        `finish` if `frame.intact()`.

        Raises:
            SharingError: OpenGL cannot read memory such as the frame's.
        """
        tensors = frame.tensors
        height, width = tensors["color"].shape[:2]
        textures = self._take_idle((width, height), has_depth="depth" in tensors)
        try:
            self._copy("color", tensors["color"], "HWC", textures.color)
            if "alpha" in tensors:
                self._copy("alpha", tensors["alpha"], "HW", textures.color, _ALPHA)
            if textures.depth is not None:
                self._copy("depth", tensors["depth"], "HW", textures.depth)
        except BaseException:
            self.give_back(textures)
            raise
        return textures

    def finish(self) -> None:
        """Wait until all copies are made."""
        self._ctx.finish()

    def watch(self, intact: Callable[[], bool], on_torn: Callable[[], None]) -> None:
        """Have `check` tell whether the last copy is whole, without a wait.

        To wait at once for a copy that is drawn next costs a turn of the GPU to other
        programs, milliseconds beside a training.

        Args:
            intact: of the frame, also after its end.
            on_torn: called if it was overwritten before it was copied.
        """
        self._watched.append(_WatchedCopy(GL.current().fence(), intact, on_torn))

    def check(self) -> None:
        """Tell of copies that have been made and are torn."""
        while self._watched and GL.current().has_passed(self._watched[0].fence):
            copy = self._watched.popleft()
            if not copy.intact():
                copy.on_torn()

    def _copy(
        self,
        name: str,
        tensor: DeviceTensor | RemoteTensor,
        layout: str,
        texture: moderngl.Texture,
        mask: tuple[bool, bool, bool, bool] = _COLOR,
    ) -> None:
        """Copy a tensor to those channels of a texture that `mask` has."""
        if name not in self._bridges:
            self._bridges[name] = AutoBridge(self._ctx)
        source = self._bridges[name].put(tensor, layout)
        if source.stride > 1:
            raise SharingError(f"OpenGL has no texture of {texture.size} pixels")
        # Data-centre GPUs run pixel shaders on a few of their processors.
        if mask == _COLOR and source.copy_to(texture):
            return
        array = self._program(source)
        framebuffer = self._ctx.framebuffer([texture])
        framebuffer.color_mask = mask
        try:
            with self._ctx.scope(framebuffer, moderngl.NOTHING):
                source.bind(array.program)
                array.render(moderngl.TRIANGLES, vertices=3)
        finally:
            framebuffer.release()

    def _program(self, source: PixelSource) -> moderngl.VertexArray:
        """Return the program that copies from such a source."""
        array = self._programs.get(source.defines)
        if array is None:
            program = self._ctx.program(
                vertex_shader=VERTEX,
                fragment_shader=fragment_head(source.defines) + _COPY,
            )
            array = self._ctx.vertex_array(program, [])
            self._programs[source.defines] = array
        return array

    # -- textures --------------------------------------------------------------------------

    def lend(self, textures: PictureTextures, user: object) -> None:
        """Leave a copy as it is until nothing refers to its user any more."""
        weakref.finalize(user, self.give_back, textures)

    def give_back(self, textures: PictureTextures) -> None:
        """Use textures again. The garbage collector may call it at any line."""
        self._idle.append(textures)

    def _take_idle(self, size: tuple[int, int], *, has_depth: bool) -> PictureTextures:
        """Return textures without a use for such a picture; release those of others."""
        idle_textures = []
        while self._idle:
            idle_textures.append(self._idle.pop())
        fitting: PictureTextures | None = None
        for textures in idle_textures:
            has_form = (textures.depth is not None) == has_depth
            if textures.color.size != size or not has_form:
                self._release(textures)
            elif fitting is None:
                fitting = textures
            else:
                self._idle.append(textures)
        return fitting or self._make(size, has_depth=has_depth)

    def _make(self, size: tuple[int, int], *, has_depth: bool) -> PictureTextures:
        color = self._ctx.texture(size, 4, alignment=1)
        color.repeat_x = False
        color.repeat_y = False
        depth: moderngl.Texture | None = None
        if has_depth:
            depth = self._ctx.texture(size, 1, dtype="f4", alignment=1)
            depth.filter = moderngl.NEAREST, moderngl.NEAREST
        textures = PictureTextures(color, depth)
        self._all.append(textures)
        return textures

    def _release(self, textures: PictureTextures) -> None:
        self._all = [kept for kept in self._all if kept is not textures]
        textures.color.release()
        if textures.depth is not None:
            textures.depth.release()

    # -- the end ---------------------------------------------------------------------------

    def close_memory(self) -> None:
        """Let go of the memory that frames lay in. Idempotent."""
        for bridge in self._bridges.values():
            bridge.close()
        self._bridges.clear()

    def close(self) -> None:
        """Release everything, also what is lent. Idempotent."""
        self.close_memory()
        while self._watched:
            GL.current().glDeleteSync(self._watched.popleft().fence)
        for array in self._programs.values():
            array.program.release()
            array.release()
        self._programs.clear()
        for textures in self._all:
            self._release(textures)
        self._idle.clear()
