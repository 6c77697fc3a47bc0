"""The inference process of `splatview camera`: detects things in the newest picture of a stream, again and again.

It is no part of the path of pictures to the screen: however long a result takes, pictures go on, and the result is
drawn over them once it is there, with the version in which it was found.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from splatview.camera.detectors import DetectorError, DetectorSettings, open_detector
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.system import entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from splatview.api.frames import Frame
    from splatview.camera.detectors import Detector

_NICENESS = 5
"""Capture and viewer come first where processors are scarce."""
_LOOK_S = 0.25
"""Period of looking for a signal while no picture comes, seconds."""
_MOST_TOLD = 20
"""Maximum number of different errors that are printed."""
_LONGEST_TROUBLE = 400


class InferenceSettings(DetectorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `python -m splatview.camera infer`."""

    stream: str = "camera"
    """The stream of pictures."""
    run: str | None = None
    """The run that publishes it: its id, the beginning of that, its name or process id; None: any."""
    every: Annotated[int, msgspec.Meta(ge=1)] | Literal["auto"] = "auto"
    """Look at every N-th picture, or "auto": at the newest as soon as the last result is published."""
    motion: bool = False
    """Viewers may move boxes between two results."""


def main(settings_json: str) -> int:
    """Detect until a signal. Return the exit status: 2 for a request that cannot be met, with the cause on stderr."""
    try:
        settings = msgspec.json.decode(settings_json, type=InferenceSettings)
        with contextlib.suppress(OSError):
            os.nice(_NICENESS)
        detector = open_detector(settings)
    except (msgspec.MsgspecError, UnicodeError, DetectorError) as e:
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


class Selection:
    """The versions to look at: each, or every N-th."""

    def __init__(self, every: int | Literal["auto"]) -> None:
        self.skipped = 0
        """Versions passed over between two that were selected."""
        self._every = 1 if every == "auto" else every
        self._last = 0, ""

    def due(self, version: int, run: str) -> bool:
        """Return whether to look at this version of this run of the publisher."""
        before, last_run = self._last
        if run != last_run or version < before:  # the publisher started again
            before, wanted = version - 1, True
        else:  # a multiple of N or the first version behind it: that one itself may have been passed over
            wanted = version // self._every > before // self._every
        if wanted:
            self.skipped += max(0, version - before - 1)
            self._last = version, run
        return wanted


class Inference:
    """The newest picture of a stream, detection in it, and then the next."""

    def __init__(self, settings: InferenceSettings, detector: Detector) -> None:
        self._settings = settings
        self._detector = detector
        self._selection = Selection(settings.every)
        self._rate = Rate()
        self._results = 0
        self._told: set[str] = set()

    def run(self, ended: Callable[[], bool]) -> None:
        """Look at pictures until `ended()`."""
        import splatview

        with splatview.frames(self._settings.stream, run=self._settings.run, timeout=_LOOK_S) as frames:
            while not ended():
                try:
                    frame = next(frames)
                except TimeoutError:
                    continue
                if self._selection.due(frame.version, frames.run):
                    self._look(frame)

    def _look(self, frame: Frame) -> None:
        import splatview

        begun = time.perf_counter()
        found: dict[str, Any] = {}
        try:
            found = self._detector.detect(picture(frame))
        except (Exception, SystemExit) as e:  # of the user's function, or of a GPU without memory
            found = {"trouble": self._trouble(e)}
        now, self._results = time.perf_counter(), self._results + 1
        self._rate.look(now, self._results)
        about = {"by": self._detector.by, "work_ms": (now - begun) * 1e3, "rate_hz": self._rate.hz,
                 "skipped": self._selection.skipped, "motion": self._settings.motion}
        try:
            splatview.annotate(self._settings.stream, version=frame, **{**about, **found})
        except (TypeError, ValueError) as e:  # a function returned what cannot be drawn
            splatview.annotate(self._settings.stream, version=frame, **about, trouble=self._trouble(e))

    def _trouble(self, error: BaseException) -> str:
        """Return the text of an error; print it, once, with its place."""
        what = traceback.format_exception_only(type(error), error)[-1]  # safe for errors without a text
        text = printable(" ".join(f"{self._detector.by}: {what}".split()))[:_LONGEST_TROUBLE]
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            place = traceback.extract_tb(error.__traceback__)[-1:]
            print(text, *(f"({line.filename}:{line.lineno})" for line in place), file=sys.stderr, flush=True)
        return text


def picture(frame: Frame) -> np.ndarray:
    """Return a frame of kind image as (H, W, 3), uint8, RGB, read-only. Raises ValueError for other kinds."""
    import numpy as np

    if frame.kind != "image":
        raise ValueError(f"the stream shows {frame.kind}; detectors look at images")
    layout, tensor = frame.meta.get("layout", "HWC"), frame.tensor
    if str(tensor.dtype) != "torch.uint8":
        tensor = (tensor.float().nan_to_num(0.0, 1.0, 0.0).clamp(0, 1) * 255).round().byte()
    pixels = tensor.cpu().numpy()
    if layout == "CHW":
        pixels = pixels.transpose(1, 2, 0)
    elif layout == "HW":
        pixels = pixels[:, :, None]
    if pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    pixels = np.ascontiguousarray(pixels[:, :, 2::-1] if layout == "BGR" else pixels[:, :, :3])
    pixels.flags.writeable = False
    return pixels


if __name__ == "__main__":
    sys.exit(entry.run(lambda: main(sys.argv[1])))
