"""Pictures of video files through PyAV, with the times stored in them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import av
import av.logging
import numpy as np
from av.error import FFmpegError, InvalidDataError

from splatview.camera.sources import CameraError, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer
    from av.video.frame import VideoFrame

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
        self.words = f"{settings.source} by PyAV"

    def open(self) -> None:
        source = self._settings.source
        self.close()
        av.logging.set_level(None)  # errors here are CameraErrors
        try:
            container = self._container = av.open(source.removeprefix("file://"))
        except (FFmpegError, OSError, ValueError) as e:
            raise CameraError(
                f"{source} is no video that FFmpeg reads: {getattr(e, 'strerror', '') or e}"
            ) from None
        if not container.streams.video:
            raise CameraError(f"{source} has no pictures in it")
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
        for packet in container.demux(stream):
            with contextlib.suppress(InvalidDataError):
                yield from packet.decode()

    def grab(self) -> float | None:
        try:
            frame = self._frame = next(self._frames, None)
        except (FFmpegError, OSError) as e:
            raise CameraError(f"{self.words}: {e.strerror or e}") from None
        if frame is None:
            return None
        self._time = (
            self._time + 1 / (self.rate or 25) if frame.time is None else frame.time
        )
        return self._time

    def retrieve(self) -> np.ndarray:
        frame = self._frame
        assert frame is not None
        width, height = fitted(frame.width, frame.height, self._settings)
        image = frame.to_ndarray(format="rgb24", width=width, height=height)
        turns = round(getattr(frame, "rotation", 0) / 90) % 4
        return np.ascontiguousarray(np.rot90(image, turns)) if turns else image

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
