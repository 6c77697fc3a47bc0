"""The inference process of `splatview camera`: detect things in a stream's pictures.

It always takes the newest picture. Pictures do not wait for it: a result is drawn over
them once it is there, with the version in which it was found.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import msgspec

from splatview.camera.detectors import DetectorError, InferenceSettings
from splatview.camera.detectors.factory import open_detector
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.system import entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.api.frames import Frame
    from splatview.camera.detectors import Detector

_NICENESS = 5
"""Capture and viewer come first where processors are scarce."""
_POLL_S = 0.25
"""Period of looking for a signal while no picture comes, seconds."""
_MAX_REPORTED = 20
"""Maximum number of different errors that are printed."""
_MAX_ERROR_LENGTH = 400


def main(settings_json: str) -> int:
    """Detect until a signal.

    Returns:
        The exit status: 2 for a request that cannot be met, with the cause on stderr.
    """
    settings = msgspec.json.decode(settings_json, type=InferenceSettings)
    os.nice(_NICENESS)
    try:
        detector = open_detector(settings)
    except DetectorError as error:
        print(error, file=sys.stderr)
        return 2
    print(detector.title, file=sys.stderr, flush=True)
    import splatview

    signals: list[int] = []
    with entry.handle_signals(lambda signal, _: signals.append(signal)):
        try:
            Inference(settings, detector).run(lambda: bool(signals))
        finally:
            splatview.close()
    return 0


class Inference:
    """Runs a detector on the newest picture of a stream, and then on the next."""

    def __init__(self, settings: InferenceSettings, detector: Detector) -> None:
        self._settings = settings
        self._detector = detector
        self._last_version = 0
        self._last_run = ""
        """Version and run of the last picture that was looked at."""
        self._skipped = 0
        self._rate = Rate()
        self._result_count = 0
        self._reported: set[str] = set()
        """Errors that were printed."""

    def run(self, has_ended: Callable[[], bool]) -> None:
        """Look at pictures until `has_ended()`."""
        import splatview

        with splatview.frames(
            self._settings.stream, run=self._settings.run, timeout=_POLL_S
        ) as frames:
            while not has_ended():
                try:
                    frame = next(frames)
                except TimeoutError:
                    continue
                if self.is_due(frame):
                    self._detect(frame)

    def is_due(self, frame: Frame) -> bool:
        """Return whether to look at a picture, and count it if not.

        Of every N versions the first that comes is due.
        """
        period = self._settings.every
        if period == "auto":
            period = 1
        is_other_run = frame.run != self._last_run
        is_due = is_other_run or frame.version // period > self._last_version // period
        self._skipped += frame.skipped + (not is_due)
        if is_due:
            self._last_version = frame.version
            self._last_run = frame.run
        return is_due

    def _detect(self, frame: Frame) -> None:
        """Publish the things in a picture, or the error of the detector."""
        import splatview

        started_at = time.perf_counter()
        try:
            result: dict[str, Any] = self._detector.detect(frame.numpy())
        except (Exception, SystemExit) as error:
            # Of the user's function, or of a GPU without memory.
            result = {"trouble": self._report(error)}
        now = time.perf_counter()
        self._result_count += 1
        self._rate.look(now, self._result_count)
        stream = self._settings.stream
        origin = {
            "by": self._detector.title,
            "work_ms": (now - started_at) * 1e3,
            "rate_hz": self._rate.hz,
            "skipped": self._skipped,
        }
        try:
            splatview.annotate(stream, version=frame, **{**origin, **result})
        except (TypeError, ValueError) as error:
            # A function returned what cannot be drawn.
            text = self._report(error)
            splatview.annotate(stream, version=frame, **origin, trouble=text)

    def _report(self, error: BaseException) -> str:
        """Return the text of an error; print it, once, with its place in the code."""
        # `traceback` is safe for errors without a text.
        lines = traceback.format_exception_only(type(error), error)
        message = f"{self._detector.title}: {lines[-1]}".split()
        text = printable(" ".join(message))[:_MAX_ERROR_LENGTH]
        if text not in self._reported and len(self._reported) < _MAX_REPORTED:
            self._reported.add(text)
            calls = traceback.extract_tb(error.__traceback__)[-1:]
            locations = [f"({call.filename}:{call.lineno})" for call in calls]
            print(text, *locations, file=sys.stderr, flush=True)
        return text


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1])))
