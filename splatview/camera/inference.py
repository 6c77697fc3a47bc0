"""The inference process of `splatview camera`: looks for things in the newest picture of a stream, again and again.

It is no part of the picture's way to the screen: however long a result takes, pictures go on, and the result is drawn
over them once it is there, with the version that it was found in.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import msgspec

from splatview.camera.detectors.base import DetectorError, printable
from splatview.camera.detectors.choice import DetectorSettings, open_detector
from splatview_ipc.system import entry

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np

    from splatview.api.frames import Frame
    from splatview.camera.detectors.base import Detector

_NICENESS = 5
"""What captures and what shows comes first where processors are scarce."""
_RATE_WINDOW = 2.0
"""Seconds over which results are counted, and three of them at least."""
_MOST_SAID = 20
_LONGEST_TROUBLE = 400


class InferenceSettings(DetectorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `python -m splatview.camera infer` is told."""

    stream: str = "camera"
    """The stream of pictures that is looked at."""
    run: str | None = None
    """The run that publishes it: its id, the beginning of that, its name or process id; None: any."""
    every: Annotated[int, msgspec.Meta(ge=1)] | Literal["auto"] = "auto"
    """Look at every N-th picture, or "auto": at the newest as soon as the last result is out."""
    motion: bool = False
    """Whether viewers may move boxes between two results."""


def main(settings_json: str) -> int:
    """Look until SIGTERM or SIGINT. The exit status: 0; 2 for what cannot be done, and stderr says why."""
    try:
        with entry.ending(_end):
            return _main(settings_json)
    except SystemExit:
        return 0


def _main(settings_json: str) -> int:
    try:
        settings = msgspec.json.decode(settings_json, type=InferenceSettings)
    except (msgspec.MsgspecError, UnicodeError) as e:
        print(f"the settings are not to be used: {e}", file=sys.stderr)
        return 2
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    try:
        detector = open_detector(settings)
    except DetectorError as e:
        print(e, file=sys.stderr)
        return 2
    print(detector.by, file=sys.stderr, flush=True)
    import splatview

    try:
        Inference(settings, detector).run()
    finally:
        for number in entry.SIGNALS:  # nothing interrupts the cleaning up
            signal.signal(number, signal.SIG_IGN)
        splatview.close()
        detector.close()
    return 0


class Inference:
    """The newest picture of a stream, what is found in it, and then the next."""

    def __init__(self, settings: InferenceSettings, detector: Detector) -> None:
        self._settings = settings
        self._detector = detector
        self._results: deque[float] = deque()
        """When the results of the last seconds were there (time.monotonic)."""
        self._version = 0
        """Of the picture that was looked at last, in this run of the publisher's."""
        self._run = ""
        self._skipped = 0
        self._said: set[str] = set()

    def run(self) -> None:
        """Look for ever."""
        import splatview

        with splatview.frames(self._settings.stream, run=self._settings.run) as frames:
            for frame in frames:
                if self._due(frame, frames.run):
                    self._look(frame)

    def _due(self, frame: Frame, run: str) -> bool:
        """Whether this picture is to be looked at; those that are not are counted."""
        if run != self._run or frame.version < self._version:  # the publisher started anew
            self._run, self._version = run, frame.version - 1
            passed = True
        else:
            every = 1 if self._settings.every == "auto" else self._settings.every
            # A multiple of N, or the first one behind it: that one itself may have come and gone during the last look.
            passed = frame.version // every > self._version // every
        if passed:
            self._skipped += max(0, frame.version - self._version - 1)
            self._version = frame.version
        return passed

    def _look(self, frame: Frame) -> None:
        begun = time.perf_counter()
        found: dict[str, Any] = {}
        trouble = ""
        try:
            found = self._detector.detect(picture(frame)).keywords()
        except (Exception, SystemExit) as e:  # the user's function, a GPU without memory
            trouble = self._told(e)
        about = {"by": self._detector.by, "work_ms": (time.perf_counter() - begun) * 1e3, "rate_hz": self._rate(),
                 "skipped": self._skipped, "motion": self._settings.motion}
        if not trouble:
            try:
                self._say(frame, {**about, **found})
            except (TypeError, ValueError) as e:  # what a function returned cannot be drawn
                trouble = self._told(e)
        if trouble:
            self._say(frame, {**about, "trouble": trouble})

    def _say(self, frame: Frame, keywords: dict[str, Any]) -> None:
        import splatview

        splatview.annotate(self._settings.stream, version=frame, **keywords)

    def _rate(self) -> float:
        """Results a second, this one included."""
        now = time.monotonic()
        results = self._results
        results.append(now)
        while len(results) > 3 and results[0] < now - _RATE_WINDOW:
            results.popleft()
        return (len(results) - 1) / (now - results[0]) if len(results) > 1 and now > results[0] else 0.0

    def _told(self, error: BaseException) -> str:
        """What went wrong, for people: over the picture as long as it does, and once on stderr."""
        what = traceback.format_exception_only(type(error), error)[-1]  # minds errors that cannot be made text
        text = printable(f"{self._detector.by}: {what}", _LONGEST_TROUBLE)
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(text)
            place = _place(error)
            print(f"{text}{f' ({place})' if place else ''}", file=sys.stderr, flush=True)
        return text


def picture(frame: Frame) -> np.ndarray:
    """A frame of kind image as (H, W, 3), uint8, RGB: without a copy where it is that, on the CPU. Read-only then.

    Raises ValueError for other kinds.
    """
    import numpy as np

    if frame.kind != "image":
        raise ValueError(f"the stream shows {frame.kind}; things are looked for in images")
    layout = frame.meta.get("layout", "HWC")
    tensor = frame.tensor
    if str(tensor.dtype) == "torch.uint8" and tensor.device.type == "cpu":
        pixels = frame.numpy()
    else:
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


def _place(error: BaseException) -> str:
    """File and line where an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
