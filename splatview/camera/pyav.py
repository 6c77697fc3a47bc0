"""Read the pictures of video files through PyAV, with the times stored in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import av
import av.logging
import numpy as np
from av.error import EOFError as EndOfFile
from av.error import FFmpegError

from splatview.camera.orientation import (
    ORIENTATIONS_OF_EXIF,
    UPRIGHT,
    exif_orientation,
    orientation_of,
    orientation_of_angle,
    stored_size,
)
from splatview.camera.sources import CaptureError, file_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from fractions import Fraction

    from av.container import InputContainer
    from av.video.frame import VideoFrame

    from splatview.camera.orientation import Orientation
    from splatview.camera.sources import CaptureSettings

_MAX_READ_ERRORS = 300
"""Errors in a row, while packets are read, after which the rest of a file is given
up."""
_ATTACHED_PICTURE = 0x400
"""FFmpeg's bit for a stream that is a cover."""
_PHOTOS = ("_pipe", "image2")
"""Ends of the names of FFmpeg's formats for single pictures."""
_DEFAULT_RATE = 25
"""Pictures a second where neither a frame nor its file tells a time."""


class PyAVSource:
    """Reads a file with FFmpeg, by PyAV."""

    recorded = True

    def __init__(self, settings: CaptureSettings):
        self._settings = settings
        self._container: InputContainer | None = None
        self._frames: Iterator[VideoFrame] = iter(())
        self._frame: VideoFrame | None = None
        self._pixel_aspect: Fraction | None = None
        """Width of a pixel over its height, where the file has it."""
        self._exif: int | None = None
        """Orientation in the file's EXIF, 0 for none; None: not looked at yet."""
        self._time = 0.0
        """Time of the last picture in the recording, seconds."""
        self.rate = 0.0
        self.description = f"{settings.source} by PyAV"

    def open(self) -> None:
        source = self._settings.source
        self.close()
        _silence()
        try:
            container = av.open(file_path(source))
        except (FFmpegError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", "") or error
            raise CaptureError(
                f"{source} is no video that FFmpeg reads: {reason}"
            ) from None
        self._container = container
        if not container.streams.video:
            raise CaptureError(f"{source} has no pictures in it")
        stream = _stream_of(container)
        if stream is None:
            raise CaptureError(
                f"{source} has pictures in a form that FFmpeg cannot decode"
            )
        stream.thread_type = "AUTO"
        self._frames = self._decode(container, stream)
        self._time = 0.0
        self._exif = None
        rate = stream.average_rate
        self.rate = float(rate) if rate and 0 < rate < 1000 else 0.0
        context = stream.codec_context
        self._pixel_aspect = stream.sample_aspect_ratio or context.sample_aspect_ratio
        size = f", {context.width} x {context.height}" if context.width else ""
        speed = f" at {self.rate:.4g}/s" if self.rate else ""
        self.description = f"{source}{size}{speed} {context.name}, by PyAV"

    @staticmethod
    def _decode(container: InputContainer, stream: Any) -> Iterator[VideoFrame]:
        """Yield all pictures of a stream.

        Packets that are damaged or lack their beginning are left out.
        """
        errors = 0
        while errors <= _MAX_READ_ERRORS:
            try:
                for packet in container.demux(stream):
                    errors = 0
                    yield from _pictures_of(packet)
            except EndOfFile:
                return
            except FFmpegError:
                # The packets after it may be sound.
                errors += 1
                if errors > _MAX_READ_ERRORS:
                    raise
            else:
                return

    def grab(self) -> float | None:
        try:
            frame = next(self._frames, None)
        except (FFmpegError, OSError) as error:
            reason = error.strerror or error
            raise CaptureError(f"{self.description}: {reason}") from None
        self._frame = frame
        if frame is None:
            return None
        if frame.time is None:
            self._time += 1 / (self.rate or _DEFAULT_RATE)
        else:
            self._time = frame.time
        return self._time

    def retrieve(self) -> np.ndarray:
        frame = self._frame
        assert frame is not None
        orientation = self._orientation_of(frame)
        width, height = stored_size(
            frame.width,
            frame.height,
            self._pixel_aspect,
            orientation,
            self._settings,
        )
        image = frame.to_ndarray(format="rgb24", width=width, height=height)
        # Rows of a picture that is RGB already lie apart.
        return np.ascontiguousarray(orientation.apply(image))

    def _orientation_of(self, frame: VideoFrame) -> Orientation:
        """Return the orientation of a frame, by the matrix that comes with it."""
        try:
            entries = list(cast("Iterable[Any]", frame.side_data))
        except ValueError:
            # PyAV does not know all that comes with a frame, such as EXIF, and then
            # gives none of it.
            entries = []
        for entry in entries:
            if entry.type.name == "DISPLAYMATRIX":
                return orientation_of(bytes(entry))
        return self._orientation_without_matrix(frame)

    def _orientation_without_matrix(self, frame: VideoFrame) -> Orientation:
        """Return the orientation of a frame by EXIF, or else by its angle alone.

        FFmpeg makes a matrix of EXIF from version 8 on.
        """
        container = self._container
        is_photo = container is not None and container.format.name.endswith(_PHOTOS)
        if is_photo and self._exif is None:
            self._exif = exif_orientation(self._settings.source.removeprefix("file://"))
        if self._exif:
            return ORIENTATIONS_OF_EXIF.get(self._exif, UPRIGHT)
        return orientation_of_angle(getattr(frame, "rotation", 0))

    def close(self) -> None:
        if self._container is not None:
            self._container.close()


def _silence() -> None:
    """Keep FFmpeg from printing: its errors become CaptureErrors."""
    try:
        av.logging.set_level(None)
    except TypeError:
        # PyAV before version 14.
        av.logging.set_level(av.logging.PANIC)


def _stream_of(container: InputContainer) -> Any:
    """Return the stream of pictures to show; None if none can be decoded.

    A cover is taken only where there is nothing else.
    """
    videos: list[Any] = list(container.streams.video)
    streams = [stream for stream in videos if stream.codec_context is not None]
    moving = [stream for stream in streams if not _is_cover(stream)]
    return next(iter(moving or streams), None)


def _is_cover(stream: Any) -> bool:
    """Return whether a stream is one picture that stands for the file."""
    disposition = getattr(stream, "disposition", None)
    return bool(getattr(disposition, "value", 0) & _ATTACHED_PICTURE)


def _pictures_of(packet: Any) -> list[VideoFrame]:
    """Return the pictures in a packet; none if it is damaged."""
    try:
        return packet.decode()
    except FFmpegError:
        return []
