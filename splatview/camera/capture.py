"""The capturing process of `splatview camera`: read a source, publish its pictures.

A worker thread does both, at the pace of the source. The main thread waits for signals,
so that the process ends at once although a library may take seconds to return from a
camera that is lost.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import splatview
from splatview.camera.open_source import source_for
from splatview.camera.sources import (
    CaptureError,
    CaptureSettings,
    NoPictureError,
    kind_of,
)
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.system import entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.camera.sources import PictureSource

PLAYED = "the recording was played"
"""Line on stderr for the parent: a recording that is not played again has ended."""
RETRY_S = 1.0
"""Pause before a source is opened again after a fault."""
PARTING_S = 1.0
"""Maximum wait at the end of the process for a worker that waits for a source."""
_POLL_S = 0.05
_MAX_DAMAGED = 30
"""Pictures in a row that cannot be decoded; a webcam has one now and then."""
_MAX_GRABS = 300
"""Grabs in a row without a picture after which a source has ended. At the end each
returns at once."""
_MAX_PIXELS = 1 << 28
"""Pixels of the largest picture that OpenCV decodes from a JPEG: as many as can be
published."""
_STILL_S = 1.0
"""Period in which a source with one picture is read again."""
_MAX_SHOWN_S = 60.0
"""Maximum time for which one picture of a recording is shown."""
_MAX_LAG_S = 0.5
"""Lag of a recording after which it is no longer caught up."""
_MAX_ERROR_LENGTH = 400


def main(settings_json: str) -> int:
    """Capture until a signal.

    Returns:
        The exit status: 2 for a source that cannot be read, with the cause on stderr.
    """
    settings = msgspec.json.decode(settings_json, type=CaptureSettings)
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(_MAX_PIXELS))
    try:
        source = source_for(settings)
    except CaptureError as error:
        print(error, file=sys.stderr)
        return 2
    output = CaptureOutput(settings)
    stop = threading.Event()
    signals = list[int]()
    reader = SourceReader(source, settings, output, stop)
    worker = threading.Thread(target=_read, args=(reader,), daemon=True)
    with entry.handle_signals(lambda signal, _: signals.append(signal)):
        worker.start()
        while worker.is_alive() and not signals:
            worker.join(_POLL_S)
        stop.set()
        worker.join(PARTING_S)
        if worker.is_alive():
            # It is inside a library, which must not meet the end of the interpreter.
            splatview.close()
            os._exit(0)
    return output.exit_code


def _read(reader: SourceReader) -> None:
    """Read until the end, once torch is loaded.

    While torch loads, the pictures of a network would queue up.
    """
    import_module("splatview.adapters.images")
    reader.run()


class CaptureOutput:
    """Publishes pictures, and errors over the last picture; prints the errors."""

    def __init__(self, settings: CaptureSettings) -> None:
        self.exit_code = 1
        """Exit status of the process, until the reading ends as it should."""
        self._settings = settings
        self._last_image: np.ndarray | None = None
        self._error = ""
        """The error that is shown now."""
        self._rate = Rate()
        self._picture_count = 0

    def is_paused(self) -> bool:
        """Return whether a viewer has paused the pictures."""
        return self._last_image is not None and splatview.paused()

    def report(self, text: str) -> None:
        """Print a line for the parent process."""
        print(text, file=sys.stderr, flush=True)

    def show(self, image: np.ndarray, dropped: int, now: float) -> None:
        """Publish a picture (H, W, 3); `dropped` ones were left out since the start."""
        if self._error:
            self._error = ""
            self.report("the pictures go on")
        self._last_image = image
        self._picture_count += 1
        self._rate.look(now, self._picture_count)
        self._publish(camera_hz=round(self._rate.hz, 1), dropped=dropped)

    def show_error(self, text: str, dropped: int) -> None:
        """Publish an error over the last picture, or over a dark one."""
        if text == self._error:
            return
        self._error = text
        self.report(text)
        if self._last_image is None:
            height = self._settings.height or 720
            width = self._settings.width or 1280
            self._last_image = np.full((height, width, 3), 24, np.uint8)
        self._publish(camera_hz=0.0, dropped=dropped, trouble=text[:_MAX_ERROR_LENGTH])

    def _publish(self, **meta: Any) -> None:
        splatview.publish(
            self._last_image,
            self._settings.stream,
            kind="image",
            layout="HWC",
            meta=meta,
        )


class CapturePace:
    """Due times of pictures, by their times in a recording."""

    def __init__(self) -> None:
        self._offset: float | None = None
        """Clock's time at the beginning of the recording; None until a picture
        comes."""
        self._due_at = 0.0
        self._has_skipped = False
        """The last picture was left out."""
        self._last_index = -1

    def restart(self, picture_count: int, rate: float) -> None:
        """Continue with the beginning of the recording, which follows its end in time.

        Args:
            picture_count: number of pictures since the recording began last.
            rate: its pictures a second; 0 for unknown.
        """
        if picture_count == 1:
            self._due_at += _STILL_S
        elif rate:
            self._due_at += 1 / rate
        self._offset = None

    def exceeds(self, max_rate: float, time_s: float, rate: float) -> bool:
        """Return whether the picture at `time_s` is one too many for a maximum rate.

        Args:
            max_rate: pictures a second; 0 for any number.
            time_s: time of the picture.
            rate: pictures a second of the source; 0 for unknown.
        """
        if not max_rate or (rate and rate <= max_rate * 1.05):
            return False
        index = int(time_s * max_rate + 0.01)
        is_same = index == self._last_index
        self._last_index = index
        return is_same

    def delay(self, time_s: float, rate: float, now: float) -> float | None:
        """Return the seconds until the picture at `time_s` is due.

        None for a picture to leave out, as it is late.
        """
        if self._offset is None:
            self._offset = max(now, self._due_at) - time_s
        lag = now - self._offset - time_s
        if lag > _MAX_LAG_S or lag < -_MAX_SHOWN_S:
            self._offset += lag
            lag = 0.0
        # Never two in a row are left out.
        is_late = rate > 0 and lag > 1 / rate
        self._has_skipped = is_late and not self._has_skipped
        self._due_at = self._offset + time_s
        if self._has_skipped:
            return None
        return max(0.0, -lag)


class SourceReader:
    """Reads a source until `stop`; opens it again after faults."""

    def __init__(
        self,
        source: PictureSource,
        settings: CaptureSettings,
        output: CaptureOutput,
        stop: threading.Event,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._settings = settings
        self._output = output
        self._stop = stop
        self._now = now
        self._dropped = 0
        """Pictures that were not published: damaged, or left out as they were late."""

    def run(self) -> None:
        """Read and publish until `stop`, or until a first fault that is final."""
        source = self._source
        was_opened = False
        while not self._stop.is_set():
            try:
                source.open()
                if not was_opened:
                    was_opened = True
                    self._output.report(source.description)
                self._play()
            except Exception as error:
                # Libraries raise errors of their own.
                reason = self._reason(error)
                is_network = kind_of(self._settings.source) == "network"
                if not was_opened and not is_network:
                    self._output.report(reason)
                    self._output.exit_code = 2
                    return
                self._output.show_error(f"{reason}; trying again", self._dropped)
                self._stop.wait(RETRY_S)
            finally:
                source.close()
        self._output.exit_code = 0

    def _reason(self, error: Exception) -> str:
        """Return an error as a text for users."""
        if isinstance(error, CaptureError):
            return str(error)
        return f"{self._source.description}: {type(error).__name__}: {error}"

    def _play(self) -> None:
        """Publish pictures until `stop`, or until a fault."""
        source = self._source
        pace = CapturePace()
        grabbed = 0
        damaged = 0
        while not self._stop.is_set():
            captured_at = self._grab(grabbed)
            if captured_at is None:
                if not self._restart(pace, grabbed):
                    return
                grabbed = 0
                continue
            grabbed += 1
            if not self._is_due(pace, captured_at):
                continue
            image = source.retrieve()
            if image is not None:
                damaged = 0
                self._output.show(image, self._dropped, self._now())
                continue
            damaged += 1
            self._dropped += 1
            if damaged > _MAX_DAMAGED:
                raise CaptureError(
                    f"{source.description}: its pictures cannot be decoded"
                )

    def _restart(self, pace: CapturePace, grabbed: int) -> bool:
        """Open a recording again at its end.

        Args:
            grabbed: pictures that came since the source was opened.

        Returns:
            False once a recording was played that is not to be played again.
        """
        source = self._source
        if not grabbed:
            raise CaptureError(f"{source.description}: there is no picture in it")
        if not self._settings.loop:
            self._output.show_error(f"{source.description}: the end", self._dropped)
            self._output.report(PLAYED)
            self._stop.wait()
            return False
        if not source.recorded:
            self._stop.wait(_STILL_S)
        source.open()
        pace.restart(grabbed, source.rate)
        return True

    def _grab(self, grabbed: int) -> float | None:
        """Grab the next picture, past those that are damaged.

        A damaged picture, the end of a recording and a lost connection look the same
        until the next grab. A live source that ends after the first of its pictures is
        a camera's still picture, which can be read again.

        Args:
            grabbed: pictures that came since the source was opened.

        Returns:
            The time of the picture; None at the end.

        Raises:
            CaptureError: a live source gives no more pictures.
        """
        source = self._source
        waited_s = 0.0
        for damaged in range(_MAX_GRABS):
            started_at = self._now()
            try:
                captured_at = source.grab()
            except NoPictureError as error:
                waited_s += self._now() - started_at
                is_lost = waited_s >= self._settings.patience or self._stop.is_set()
                if damaged < _MAX_GRABS - 1 and not is_lost:
                    continue
                is_still = grabbed == 1 and not is_lost
                if source.recorded or is_still:
                    return None
                raise CaptureError(str(error)) from None
            self._dropped += damaged
            return captured_at
        return None

    def _is_due(self, pace: CapturePace, captured_at: float) -> bool:
        """Wait until the grabbed picture is due; return False to leave it out."""
        source = self._source
        time_s = captured_at if source.recorded else self._now()
        if pace.exceeds(self._settings.fps, time_s, source.rate):
            return False
        if not source.recorded:
            return not self._output.is_paused()
        while self._output.is_paused() and not self._stop.wait(_POLL_S):
            pass
        delay_s = pace.delay(captured_at, source.rate, self._now())
        if delay_s is None:
            self._dropped += 1
            return False
        self._stop.wait(delay_s)
        return True


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1])))
