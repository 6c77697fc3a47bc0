"""The process that captures: `python -m splatview.camera capture SETTINGS`.

One thread reads the source and keeps the newest picture; the main thread publishes it. So reading never waits for
publishing, and what a source does, or fails to do, is told whether or not it comes back from it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

import splatview
from splatview.camera.reading import Reading
from splatview.camera.sources import HopelessError, SourceSettings, source_for
from splatview_ipc.system import entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HUNG = 75
"""The exit status of a process whose source never came back from a call: another process may have more luck."""
_HANGS_AFTER = 60.0
"""Seconds beyond a source's patience; looking up a name in the network may well take half of it."""
_PARTING = 1.0
"""Seconds that the reading thread is given to end; it may be waiting for a picture."""
_LOOK = 0.25
_MOST_TEXT = 400


class CaptureSettings(SourceSettings, frozen=True, kw_only=True):
    """What to capture, and under which name to publish it."""

    stream: str = "camera"
    loop: bool = True
    """Whether a recording begins again at its end."""


class Said(msgspec.Struct, frozen=True):
    """What the capturing process tells its parent: one line of JSON on standard output."""

    event: Literal["open", "trouble", "ended"]
    text: str


def say(event: Literal["open", "trouble", "ended"], text: str) -> None:
    sys.stdout.write(msgspec.json.encode(Said(event, text)).decode() + "\n")
    sys.stdout.flush()


def main(settings: str) -> int:
    """Capture until told to end. The exit status: 2 for what can never be read, and stderr says why."""
    decoded = msgspec.json.decode(settings, type=CaptureSettings)
    try:
        reading = Reading(source_for(decoded), decoded)
    except HopelessError as e:
        print(e, file=sys.stderr)
        return 2
    with entry.ending(lambda *_: reading.stop()):
        return _publish(reading, decoded)


def _publish(reading: Reading, decoded: CaptureSettings) -> int:
    reading.start()
    try:
        code = _Capture(reading, decoded).run()
    except BrokenPipeError:  # the parent is gone
        code = 1
    reading.stop()
    if not reading.ends_within(_PARTING):
        _leave(code)
    return code


def _leave(code: int) -> NoReturn:
    """End although a thread is inside a library: an interpreter that ends beside it would break it."""
    if (api := sys.modules.get("splatview.api.session")) is not None:
        api.session().close()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # the parent is gone
            stream.flush()
    os._exit(code)


class _Capture:
    """Publishes what is read, and says what goes wrong."""

    def __init__(self, reading: Reading, settings: CaptureSettings):
        self._reading = reading
        self._settings = settings
        self._last: NDArray[np.uint8] | None = None
        self._told = ""
        """The trouble that was said last; "" while there is none."""
        self._said_open = False
        self._on_picture = ""
        """The trouble that was published last."""
        self._came = time.monotonic()

    def run(self) -> int:
        reading = self._reading
        while not (reading.opened or reading.trouble or reading.hopeless or reading.stopped):
            reading.wait(_LOOK)
            if self._hung():
                self._give_up()
        if not (reading.hopeless or reading.stopped):
            self._tell()
            import torch  # noqa: F401 - what publishing needs, loaded while the parent starts the others

            reading.forget_dropped()
            self._came = time.monotonic()
        while not reading.stopped:
            if reading.hopeless:
                print(reading.hopeless, file=sys.stderr)
                return 2
            image = reading.take(_LOOK)
            now = time.monotonic()
            reading.paused = self._last is not None and splatview.paused()
            if reading.paused:  # by a viewer's button: what comes meanwhile is let go
                self._came = now
            elif image is not None:
                self._last, self._came = image, now
                if self._told and not reading.trouble:
                    self._told, self._said_open = "", True
                    say("open", f"{reading.source.words}: it goes on")
                self._publish(image)
            else:
                self._tell()
                if self._told != self._on_picture:
                    self._publish(self._shown())
            if self._hung():
                self._give_up()
        return 0

    def _tell(self) -> None:
        """Say what is new: that the source is open, or what trouble there is."""
        reading, patience = self._reading, self._settings.patience
        trouble = reading.trouble
        if not trouble and not reading.ended and time.monotonic() - self._came > patience:
            trouble = f"{reading.source.words}: no picture for {patience:g} s"
        if reading.opened and not (reading.trouble or self._said_open):
            self._said_open = True
            say("open", reading.source.words)
        if trouble and trouble != self._told:
            self._told = trouble
            say("ended" if reading.ended else "trouble", trouble)

    def _publish(self, image: NDArray[np.uint8]) -> None:
        rate = 0.0 if self._told else self._reading.rate_hz
        meta: dict[str, Any] = {"camera_hz": rate, "dropped": self._reading.dropped}
        self._on_picture = self._told
        if self._told:
            meta["trouble"] = self._told[:_MOST_TEXT]
        splatview.publish(image, self._settings.stream, kind="image", layout="HWC", **meta)

    def _shown(self) -> NDArray[np.uint8]:
        """What trouble is said over: the last picture, or a dark one if there was none yet."""
        if self._last is None:
            import numpy as np

            self._last = np.full((self._settings.height or 720, self._settings.width or 1280, 3), 24, np.uint8)
        return self._last

    def _hung(self) -> bool:
        return self._reading.stuck_for > self._settings.patience + _HANGS_AFTER

    def _give_up(self) -> NoReturn:
        print(f"{self._reading.source.words}: it does not come back from a call", file=sys.stderr)
        _leave(HUNG)
