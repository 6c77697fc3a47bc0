"""Pictures of video files through PyAV, with the times stored in them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from splatview.camera.sources import CameraError, HopelessError, fitted, shown
from splatview_ipc.system.optional_packages import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from numpy.typing import NDArray

    from splatview.camera.sources import CaptureSettings


class PyAVSource:
    """Reads a file with FFmpeg, by PyAV."""

    recorded = True

    def __init__(self, settings: CaptureSettings):
        self._settings = settings
        self._container: InputContainer | None = None
        self._frames: Iterator[VideoFrame] = iter(())
        self._frame: VideoFrame | None = None
        self._time = 0.0
        """Time of the last picture in the recording, seconds."""
        self.rate = 0.0
        self.words = f"{shown(settings.source)} by PyAV"

    def open(self) -> None:
        source = self._settings.source
        with needed(f"{source}: reading a video needs", "av", error=HopelessError):
            import av
            import av.logging
            from av.error import FFmpegError

        self.close()
        av.logging.set_level(None)  # errors here are CameraErrors
        try:
            container = self._container = av.open(source.removeprefix("file://"))
        except (FFmpegError, OSError, ValueError) as e:
            raise HopelessError(f"{source} is no video that FFmpeg reads: {getattr(e, 'strerror', '') or e}") from None
        if not container.streams.video:
            raise HopelessError(f"{source} has no pictures in it")
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        rate = stream.average_rate
        self.rate = float(rate) if rate and 0 < rate < 1000 else 0.0
        self._frames = self._decoded(container, stream)
        self._time = 0.0
        context = stream.codec_context
        size = f", {context.width} x {context.height}" if context.width else ""
        self.words = f"{source}{size}{f' at {self.rate:.4g}/s' if self.rate else ''} {context.name}, by PyAV"

    @staticmethod
    def _decoded(container: InputContainer, stream: Any) -> Iterator[VideoFrame]:
        """Yield all pictures of a stream; leave out packets that are damaged or lack their beginning."""
        from av.error import InvalidDataError

        for packet in container.demux(stream):
            with contextlib.suppress(InvalidDataError):
                yield from packet.decode()

    def grab(self) -> float | None:
        from av.error import FFmpegError

        if self._container is None:
            raise CameraError(f"{self.words}: it is not open")
        try:
            frame = self._frame = next(self._frames, None)
        except (FFmpegError, OSError) as e:
            raise CameraError(f"{self.words}: {e.strerror or e}") from None
        if frame is None:
            return None
        self._time = self._time + 1 / (self.rate or 25) if frame.time is None else frame.time
        return self._time

    def retrieve(self) -> NDArray[np.uint8]:
        import numpy as np

        frame, self._frame = self._frame, None
        if frame is None:
            raise CameraError(f"{self.words}: no picture was grabbed")
        width, height = fitted(frame.width, frame.height, self._settings)
        image = frame.to_ndarray(format="rgb24", width=width, height=height)
        turns = round(getattr(frame, "rotation", 0) / 90) % 4
        return np.ascontiguousarray(np.rot90(image, turns)) if turns else image

    def close(self) -> None:
        container, self._container = self._container, None
        self._frames, self._frame = iter(()), None
        if container is not None:
            container.close()
