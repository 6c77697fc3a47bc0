"""The inference process of `splatview camera`: detects things in the newest picture of a stream, again and again.

Pictures do not wait for it: a result is drawn over them once it is there, with the version in which it was found.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

import msgspec

from splatview.camera.detectors import DetectorError, InferenceSettings, open_detector
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.system import entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.api.frames import Frame
    from splatview.camera.detectors import Detector

_NICENESS = 5
"""Capture and viewer come first where processors are scarce."""
_LOOK_S = 0.25
"""Period of looking for a signal while no picture comes, seconds."""
_MOST_TOLD = 20
"""Maximum number of different errors that are printed."""
_LONGEST_TROUBLE = 400


def main(settings_json: str) -> int:
    """Detect until a signal. Return the exit status: 2 for a request that cannot be met, with the cause on stderr."""
    settings = msgspec.json.decode(settings_json, type=InferenceSettings)
    os.nice(_NICENESS)
    try:
        detector = open_detector(settings)
    except DetectorError as e:
        print(e, file=sys.stderr)
        return 2
    print(detector.by, file=sys.stderr, flush=True)
    import splatview

    signals: list[int] = []
    with entry.ending(lambda number, _: signals.append(number)):
        try:
            Inference(settings, detector).run(lambda: bool(signals))
        finally:
            splatview.close()
    return 0


class Inference:
    """The newest picture of a stream, detection in it, and then the next."""

    def __init__(self, settings: InferenceSettings, detector: Detector) -> None:
        self._settings = settings
        self._detector = detector
        self._last = 0, ""
        """Version and run of the last picture that was looked at."""
        self._skipped = 0
        self._rate = Rate()
        self._results = 0
        self._told: set[str] = set()

    def run(self, ended: Callable[[], bool]) -> None:
        """Look at pictures until `ended()`."""
        import splatview

        with splatview.frames(
            self._settings.stream, run=self._settings.run, timeout=_LOOK_S
        ) as frames:
            while not ended():
                try:
                    frame = next(frames)
                except TimeoutError:
                    continue
                if not self.due(frame):
                    continue
                begun = time.perf_counter()
                found: dict[str, Any] = {}
                try:
                    found = self._detector.detect(frame.numpy())
                except (
                    Exception,
                    SystemExit,
                ) as e:  # of the user's function, or of a GPU without memory
                    found = {"trouble": self._trouble(e)}
                now = time.perf_counter()
                self._results = self._results + 1
                self._rate.look(now, self._results)
                about = {
                    "by": self._detector.by,
                    "work_ms": (now - begun) * 1e3,
                    "rate_hz": self._rate.hz,
                    "skipped": self._skipped,
                }
                try:
                    splatview.annotate(
                        self._settings.stream, version=frame, **{**about, **found}
                    )
                except (
                    TypeError,
                    ValueError,
                ) as e:  # a function returned what cannot be drawn
                    splatview.annotate(
                        self._settings.stream,
                        version=frame,
                        **about,
                        trouble=self._trouble(e),
                    )

    def due(self, frame: Frame) -> bool:
        """Return whether to look at a picture, and count it if not: of every N versions, at the first that comes."""
        every = 1 if self._settings.every == "auto" else self._settings.every
        version, run = self._last
        due = frame.run != run or frame.version // every > version // every
        self._skipped += frame.skipped + (not due)
        self._last = (frame.version, frame.run) if due else self._last
        return due

    def _trouble(self, error: BaseException) -> str:
        """Return the text of an error; print it, once, with its place."""
        what = traceback.format_exception_only(type(error), error)[
            -1
        ]  # safe for errors without a text
        text = printable(" ".join(f"{self._detector.by}: {what}".split()))[
            :_LONGEST_TROUBLE
        ]
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            place = traceback.extract_tb(error.__traceback__)[-1:]
            print(
                text,
                *(f"({line.filename}:{line.lineno})" for line in place),
                file=sys.stderr,
                flush=True,
            )
        return text


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1])))
