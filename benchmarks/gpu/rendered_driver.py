"""Run the viewer with a user who looks at a scene that a function draws.

`python -m benchmarks.gpu.rendered_driver serve [OPTION ...]`

As `benchmarks.gpu.driver`, whose counts are of the function's pictures that were shown,
and:

| do | what |
|---|---|
| begin, report | as there, and "function_ms", the median of what a picture took |
| stamps, on= | read the time in each picture that is shown, and when it came where |
| delays | those times: {"size", "has_depth", "read_ms", "texture_ms"} of each picture |
| keep, file= | write the newest picture and its camera to a file of NumPy |
| click, name= | click a button of the script; "ns": when |
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu import driver
from benchmarks.gpu.deformation import stamp_of

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
        """When an answer was last read."""
        self._textured_ns = 0
        """When a texture had the picture that was drawn last."""

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
        if self._reads_stamps and self._textured_ns:
            self._delays.append(self._delay(picture))

    def _delay(self, picture: Any) -> dict[str, Any]:
        """Return the times of a picture since its function had drawn it."""
        stamp_ns = stamp_of(picture.pixels)
        return {
            "size": f"{picture.camera.width}x{picture.camera.height}",
            "has_depth": picture.depth is not None,
            "read_ms": (self._read_ns - stamp_ns) / 1e6,
            "texture_ms": (self._textured_ns - stamp_ns) / 1e6,
        }

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

        def timed(frame: Any) -> bool:
            is_taken = take(frame)
            self._read_ns = time.monotonic_ns()
            return is_taken

        return timed

    def _timing_textures(self, lay: Callable[..., None]) -> Callable[..., None]:
        """Return a function that draws the picture and notes when OpenGL had done it."""

        def timed(*arguments: Any) -> None:
            lay(*arguments)
            if self._reads_stamps:
                self.ctx.finish()
                self._textured_ns = time.monotonic_ns()

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
            pixels=picture.pixels[..., :3],
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


if __name__ == "__main__":
    driver.main(RenderedScreen)
