"""Run the viewer with a user who looks at a scene that a function draws.

`python -m benchmarks.gpu.rendered_driver serve [OPTION ...]`

As `benchmarks.gpu.driver`, whose counts are of the function's pictures that were shown,
and:

| do | what |
|---|---|
| begin, report | as there, and "function_ms", the median of what a picture took |
| stamps, on= | read the time in each picture that is shown, and when it came where |
| delays | those times: {"size", "has_depth", "memory", "texture_ms", "drawn_ms"} |
| keep, file= | write the newest picture and its camera to a file of NumPy |
| click, name= | click a button of the script; "ns": when |
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu import driver
from benchmarks.gpu.deformation import STAMP_BYTES, stamp_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.subscriber.remote_stream import RemoteStream


class RenderedScreen(driver.CountingScreen):
    """Looks at the pictures of a function as they come."""

    def __init__(self, screen: Any) -> None:
        super().__init__(screen)
        self._reads_stamps = False
        self._delays: list[dict[str, Any]] = []
        self._shown_picture: Any = None
        self._function_ms: list[float] = []
        """Milliseconds that the function took for each picture that was shown."""
        self._read_ns = 0
        """When an answer was last read; one in GPU memory is in a texture then."""
        self._drawn_ns = 0
        """When OpenGL had drawn a picture last."""

    def _scene_view(self) -> Any:
        """Return the view of the scene; None before there is one."""
        return getattr(self._view(), "view", None)

    def _count_renders(self) -> None:
        """Count a picture if it is another one than the last."""
        picture = getattr(self._scene_view(), "picture", None)
        if picture is None or picture is self._shown_picture:
            return
        self._shown_picture = picture
        camera = picture.camera
        camera_now = camera.viewmat.tobytes()
        self._renders.append(
            (camera.width, camera.height, camera_now != self._moved_to)
        )
        self._moved_to = camera_now
        self._function_ms.append(picture.ms)
        if self._reads_stamps and self._drawn_ns:
            self._delays.append(self._delay(picture))

    def _delay(self, picture: Any) -> dict[str, Any]:
        """Return the times of a picture since its function had drawn it."""
        memory = "host memory"
        texture_ns = self._drawn_ns
        if _is_on_gpu(picture):
            memory = "GPU memory"
            texture_ns = self._read_ns
        stamp_ns = stamp_of(self._first_pixels(picture))
        return {
            "size": f"{picture.camera.width}x{picture.camera.height}",
            "has_depth": picture.pixels.depth is not None,
            "memory": memory,
            "texture_ms": (texture_ns - stamp_ns) / 1e6,
            "drawn_ms": (self._drawn_ns - stamp_ns) / 1e6,
        }

    def _first_pixels(self, picture: Any) -> np.ndarray:
        """Return the first pixels of the first row, (1, N, 3)."""
        color = picture.pixels.color
        if not _is_on_gpu(picture):
            return color[:1, :STAMP_BYTES, :3]
        framebuffer = self.ctx.framebuffer([color])
        try:
            viewport = 0, 0, STAMP_BYTES, 1
            row = framebuffer.read(viewport, components=3, alignment=1)
        finally:
            framebuffer.release()
        return np.frombuffer(row, np.uint8).reshape(1, STAMP_BYTES, 3)

    def _time(self) -> None:
        """Take times at the view from its first picture on."""
        view = self._scene_view()
        if view is None or id(view) in self._timed:
            return
        self._timed.add(id(view))
        requests = view.data.requests
        requests.take = self._timing_reads(requests.take)
        view.lay_picture = self._timing_textures(view.lay_picture)

    def _timing_reads(self, take: Callable[..., bool]) -> Callable[..., bool]:
        """Return a function that takes an answer and notes when it was read."""

        def timed(frame: Any, **options: Any) -> bool:
            is_taken = take(frame, **options)
            self._read_ns = time.monotonic_ns()
            return is_taken

        return timed

    def _timing_textures(self, lay: Callable[..., None]) -> Callable[..., None]:
        """Return a function that draws the picture and notes when OpenGL had done it."""

        def timed(*arguments: Any) -> None:
            lay(*arguments)
            if self._reads_stamps:
                self.ctx.finish()
                self._drawn_ns = time.monotonic_ns()

        return timed

    # -- commands ------------------------------------------------------------------

    def _do_begin(self) -> None:
        super()._do_begin()
        self._function_ms.clear()

    def _do_report(self) -> dict[str, Any]:
        function_ms = None
        if self._function_ms:
            function_ms = statistics.median(self._function_ms)
        return {**super()._do_report(), "function_ms": function_ms}

    def _do_stamps(self, on: bool) -> None:
        self._reads_stamps = on
        self._delays.clear()

    def _do_delays(self) -> dict[str, Any]:
        return {"delays": self._delays}

    def _do_keep(self, file: str) -> None:
        picture = self._scene_view().picture
        camera = picture.camera
        np.savez(
            file,
            pixels=_color_array(picture),
            viewmat=camera.viewmat,
            K=camera.K,
            near=camera.near,
            far=camera.far,
        )

    def _do_click(self, name: str) -> dict[str, Any]:
        stream = self._controls_stream()
        stream.open()
        now = time.monotonic_ns()
        stream.set_control(name, clicks=1)
        return {"ns": now}

    def _controls_stream(self) -> RemoteStream:
        """Return the stream of the script's controls."""
        assert self.app is not None
        streams = self.app.catalogue.subscriber.streams
        return next(stream for stream in streams if stream.kind == "controls")


def _is_on_gpu(picture: Any) -> bool:
    """Return whether a picture came in GPU memory."""
    return not isinstance(picture.pixels.color, np.ndarray)


def _color_array(picture: Any) -> np.ndarray:
    """Return a picture's colours (H, W, 3) uint8, top row first."""
    color = picture.pixels.color
    if not _is_on_gpu(picture):
        return color[..., :3]
    width, height = color.size
    texels = np.frombuffer(color.read(alignment=1), np.uint8)
    return texels.reshape(height, width, 4)[..., :3]


if __name__ == "__main__":
    driver.main(RenderedScreen)
