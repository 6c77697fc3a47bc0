"""Pictures by way of PyAV: files and network streams, each at the times that stand in them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview.camera.sources import CameraError, HopelessError, fitted, kind_of, shown
from splatview_ipc.system.optional_packages import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from numpy.typing import NDArray

    from splatview.camera.sources import Buffers, SourceSettings

_STEPWISE = ("hls", "dash")
"""Formats that come in pieces of some seconds: live, but each piece at once."""
_OPTIONS = {"rtsp_transport": "tcp"}
"""Of network streams: over UDP, pictures of RTSP arrive with holes in them."""
_ODD_PACKETS = 100
"""Packets in a row that may be beyond decoding, as those before the first whole picture of a stream are."""


class PyAVSource:
    """What FFmpeg reads, by PyAV."""

    def __init__(self, settings: SourceSettings):
        self._settings = settings
        self._network = kind_of(settings.source) == "network"
        self._container: InputContainer | None = None
        self._frames: Iterator[VideoFrame] = iter(())
        self._frame: VideoFrame | None = None
        self._base: float | None = None
        self._after = 0.0
        self.recorded = not self._network
        self.rate = 0.0
        self.words = f"{shown(settings.source)} by PyAV"

    def open(self) -> None:
        with needed(f"{shown(self._settings.source)}: reading it needs", "av", error=HopelessError):
            import av
            import av.logging
            from av.error import FFmpegError

        self.close()
        av.logging.set_level(None)  # what goes wrong is told by our own errors, once
        source = self._settings.source.removeprefix("file://")
        try:
            container = av.open(source, timeout=self._settings.patience if self._network else None,
                                options=_OPTIONS if self._network else {})
        except (FFmpegError, OSError, ValueError) as e:
            raise self._why_not(e) from None
        self._container = container
        if not container.streams.video:
            raise HopelessError(f"{shown(source)} has no pictures in it")
        stream = container.streams.video[0]
        stream.thread_type = "AUTO" if not self._network else "SLICE"  # threads of frames hold some pictures back
        name = container.format.name
        self.recorded = not self._network or container.duration is not None or name in _STEPWISE
        rate = stream.average_rate if self.recorded else None  # of what is live, FFmpeg only guesses
        self.rate = float(rate) if rate and 0 < rate < 1000 else 0.0
        self._frames = self._decoded(container, stream)
        self._base, self._after = None, 0.0
        context = stream.codec_context
        size = f", {context.width} x {context.height}" if context.width else ""
        rate = f" at {self.rate:.4g}/s" if self.rate else ""
        self.words = f"{shown(source)}{size}{rate} {context.name}, by PyAV"

    def _why_not(self, error: Exception) -> CameraError:
        from av.error import LookupError as AbsentError

        source, why = shown(self._settings.source), self._words_of(error)
        if isinstance(error, AbsentError):  # a protocol or a codec that this FFmpeg has not
            return HopelessError(f"{source} cannot be read by this PyAV: {why}")
        if self._network:
            return CameraError(f"{source} cannot be opened: {why}")
        if not Path(source.removeprefix("file://")).exists():
            return CameraError(f"there is no file {source} any more")
        return HopelessError(f"{source} is no video that FFmpeg reads: {why}")

    def _words_of(self, error: Exception) -> str:
        from av.error import ExitError

        if isinstance(error, ExitError):  # how PyAV's own timeout looks
            return f"nothing came within {self._settings.patience:g} s"
        return getattr(error, "strerror", None) or str(error)

    @staticmethod
    def _decoded(container: InputContainer, stream: Any) -> Iterator[VideoFrame]:
        """All pictures of a stream; packets that are damaged, or of which the beginning is missing, are left out."""
        from av.error import InvalidDataError

        odd = 0
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except InvalidDataError:
                odd += 1
                if odd > _ODD_PACKETS:
                    raise
                continue
            odd = 0 if frames else odd
            yield from frames

    def grab(self) -> float | None:
        from av.error import FFmpegError

        if self._container is None:
            raise CameraError(f"{self.words}: it is not open")
        try:
            frame = self._frame = next(self._frames, None)
        except (FFmpegError, OSError) as e:
            raise CameraError(f"{self.words}: {self._words_of(e)}") from None
        if frame is None:
            return None
        if not self.recorded:
            return time.monotonic()
        at = frame.time
        if at is None:
            at = self._after
        if self._base is None:
            self._base = at
        self._after = at + (1 / self.rate if self.rate else 0.04)
        return at - self._base

    def retrieve(self, buffers: Buffers) -> NDArray[np.uint8]:
        import numpy as np

        frame, self._frame = self._frame, None
        if frame is None:
            raise CameraError(f"{self.words}: no picture was grabbed")
        width, height = fitted(frame.width, frame.height, self._settings)
        converted = frame.reformat(width=width, height=height, format="rgb24")
        plane = converted.planes[0]
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)
        image = rows[:height, : width * 3].reshape(height, width, 3)
        turns = round(getattr(frame, "rotation", 0) / 90) % 4
        if turns:
            image = np.rot90(image, turns)
        result = buffers.take(*image.shape[:2])
        np.copyto(result, image)
        return result

    def close(self) -> None:
        container, self._container = self._container, None
        self._frames, self._frame = iter(()), None
        if container is not None:
            container.close()
