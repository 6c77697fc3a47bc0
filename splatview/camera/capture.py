"""The capturing process of `splatview camera`: reads a source at its pace and publishes its pictures.

A worker thread does both. The main thread waits for signals, so that the process ends at once although a library may
take seconds to return from a camera that is lost.
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
from splatview.camera.sources import (
    CaptureError,
    CaptureSettings,
    NoPictureError,
    kind_of,
    source_for,
)
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.system import entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.camera.sources import PictureSource

PLAYED = "the recording was played"
"""Tells the parent of the end of a recording that is not played again."""
RETRY_S = 1.0
"""Pause before a source is opened again after a fault."""
PARTING_S = 1.0
"""Patience with a worker that waits for a source when the process ends."""
_LOOK_S = 0.05
_MOST_DAMAGED = 30
"""Maximum number of pictures in a row that cannot be decoded; a webcam has one now and then."""
_MAX_TRIES = 300
"""Grabs in a row without a picture after which a source has ended. At the end each returns at once."""
_MAX_PIXELS = 1 << 28
"""Pixels of the largest picture that OpenCV decodes from a JPEG: as many as can be published."""
_STILL_S = 1.0
"""Period in which a source with one picture is read again."""
_LONGEST_S = 60.0
"""Maximum time for which one picture of a recording is shown."""
_BEHIND_S = 0.5
"""Lag of a recording after which it is no longer caught up."""
_LONGEST_TEXT = 400


def main(settings_json: str) -> int:
    """Capture until a signal. Return the exit status: 2 for a source that cannot be read, with the cause on stderr."""
    settings = msgspec.json.decode(settings_json, type=CaptureSettings)
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(_MAX_PIXELS))
    try:
        source = source_for(settings)
    except CaptureError as e:
        print(e, file=sys.stderr)
        return 2
    output = CaptureOutput(settings)
    stop = threading.Event()
    signals = list[int]()
    reading = SourceReader(source, settings, output, stop)
    worker = threading.Thread(target=_read, args=(reading,), daemon=True)
    with entry.ending(lambda number, _: signals.append(number)):
        worker.start()
        while worker.is_alive() and not signals:
            worker.join(_LOOK_S)
        stop.set()
        worker.join(PARTING_S)
        if (
            worker.is_alive()
        ):  # inside a library, which must not meet the end of the interpreter
            splatview.close()
            os._exit(0)
    return output.code


def _read(reading: SourceReader) -> None:
    """Read until the end, once torch is loaded: a network's pictures would queue up meanwhile."""
    import_module("splatview.adapters.images")
    reading.run()


class CaptureOutput:
    """Publishes pictures, and troubles over the last picture, and prints the troubles."""

    def __init__(self, settings: CaptureSettings) -> None:
        self.code = 1
        """Exit status of the process, until the reading ends as it should."""
        self._settings = settings
        self._last: np.ndarray | None = None
        self._trouble = ""
        self._rate = Rate()
        self._pictures = 0

    def held(self) -> bool:
        """Return whether a viewer has paused the pictures."""
        return self._last is not None and splatview.paused()

    def tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(self, image: np.ndarray, dropped: int, now: float) -> None:
        if self._trouble:
            self._trouble = ""
            self.tell("the pictures go on")
        self._last = image
        self._pictures = self._pictures + 1
        self._rate.look(now, self._pictures)
        self._publish(camera_hz=round(self._rate.hz, 1), dropped=dropped)

    def show_trouble(self, text: str, dropped: int) -> None:
        """Publish a trouble over the last picture, or over a dark one before there was any."""
        if text == self._trouble:
            return
        self._trouble = text
        self.tell(text)
        if self._last is None:
            self._last = np.full(
                (self._settings.height or 720, self._settings.width or 1280, 3),
                24,
                np.uint8,
            )
        self._publish(camera_hz=0.0, dropped=dropped, trouble=text[:_LONGEST_TEXT])

    def _publish(self, **meta: Any) -> None:
        splatview.publish(
            self._last, self._settings.stream, kind="image", layout="HWC", meta=meta
        )


class CapturePace:
    """Due times of pictures, by their times in a recording."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._due = 0.0
        self._skipped = False
        self._last_index = -1

    def again(self, came: int, rate: float) -> None:
        """Note that the recording begins again after `came` pictures: its first follows the last in its own time."""
        self._due += _STILL_S if came == 1 else 1 / rate if rate else 0
        self._offset = None

    def exceeds(self, fps: float, at: float, rate: float) -> bool:
        """Return whether the picture at time `at` of a source with this rate is one too many for `fps`, 0 for any."""
        if not fps or (rate and rate <= fps * 1.05):
            return False
        index = int(at * fps + 0.01)
        exceeds = index == self._last_index
        self._last_index = index
        return exceeds

    def delay(self, at: float, rate: float, now: float) -> float | None:
        """Return the seconds until the picture at time `at` is due; None to leave it out, as it is late."""
        if self._offset is None:
            self._offset = max(now, self._due) - at
        late = now - self._offset - at
        if late > _BEHIND_S or late < -_LONGEST_S:
            self._offset = self._offset + late
            late = 0.0
        self._skipped = (
            bool(rate) and late > 1 / rate and not self._skipped
        )  # never two in a row
        self._due = self._offset + at
        return None if self._skipped else max(0.0, -late)


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
        source = self._source
        output = self._output
        opened = False
        while not self._stop.is_set():
            try:
                source.open()
                if not opened:
                    opened = True
                    output.tell(source.words)
                self._play()
            except Exception as e:  # libraries have their own
                if isinstance(e, CaptureError):
                    why = str(e)
                else:
                    why = f"{source.words}: {type(e).__name__}: {e}"
                if not opened and kind_of(self._settings.source) != "network":
                    output.tell(why)
                    output.code = 2
                    return
                output.show_trouble(f"{why}; trying again", self._dropped)
                self._stop.wait(RETRY_S)
            finally:
                source.close()
        output.code = 0

    def _play(self) -> None:
        """Publish pictures until `stop`, or until a fault."""
        source = self._source
        output = self._output
        pace = CapturePace()
        grabbed = 0
        damaged = 0
        while not self._stop.is_set():
            captured_at = self._grab(grabbed)
            if captured_at is None:
                if not grabbed:
                    raise CaptureError(f"{source.words}: there is no picture in it")
                if not self._settings.loop:
                    output.show_trouble(f"{source.words}: the end", self._dropped)
                    output.tell(PLAYED)
                    self._stop.wait()
                    return
                if not source.recorded:
                    self._stop.wait(_STILL_S)
                source.open()
                pace.again(grabbed, source.rate)
                grabbed = 0
                continue
            grabbed += 1
            if not self._is_due(pace, captured_at):
                continue
            image = source.retrieve()
            if image is not None:
                damaged = 0
                output.show(image, self._dropped, self._now())
                continue
            damaged += 1
            self._dropped += 1
            if damaged > _MOST_DAMAGED:
                raise CaptureError(f"{source.words}: its pictures cannot be decoded")

    def _grab(self, grabbed: int) -> float | None:
        """Grab the next picture, past those that are damaged. Return its time; None at the end.

        A damaged picture, the end of a recording and a lost connection look the same until the next
        grab. Raises CameraError for a live source that gives no more pictures. One that ends after the
        first of its pictures is a camera's still picture, which can be read again.

        Args:
            grabbed: pictures that came since the source was opened.
        """
        source = self._source
        waited = 0.0
        for damaged in range(_MAX_TRIES):
            started_at = self._now()
            try:
                captured_at = source.grab()
            except NoPictureError as error:
                waited += self._now() - started_at
                is_lost = waited >= self._settings.patience or self._stop.is_set()
                if damaged < _MAX_TRIES - 1 and not is_lost:
                    continue
                is_still = grabbed == 1 and not is_lost
                if source.recorded or is_still:
                    return None
                raise CaptureError(str(error)) from None
            self._dropped += damaged
            return captured_at
        return None

    def _is_due(self, pace: CapturePace, captured_at: float) -> bool:
        """Wait until the grabbed picture is to be shown. Return False if it is to be left out."""
        source = self._source
        time_s = captured_at if source.recorded else self._now()
        if pace.exceeds(self._settings.fps, time_s, source.rate):
            return False
        if not source.recorded:
            return not self._output.held()
        while self._output.held() and not self._stop.wait(_LOOK_S):
            pass
        delay = pace.delay(captured_at, source.rate, self._now())
        if delay is None:
            self._dropped += 1
            return False
        self._stop.wait(delay)
        return True


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1])))
