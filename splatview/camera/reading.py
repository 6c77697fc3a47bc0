"""The thread that reads a source: at the source's pace, again and again, for ever."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from splatview.camera.sources import Buffers, CameraError, DamagedError, HopelessError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from splatview.camera.capture import CaptureSettings
    from splatview.camera.sources import Source

_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before the first, second, ... next try; the last for all that follow."""
_LIVES = 10.0
"""Seconds of pictures after which the next fault is taken for the first one again."""
_RATE_OVER = 2.0
"""Seconds over which the rate is measured."""
_MOST_DAMAGED = 30
"""Pictures in a row that may be beyond decoding: of a webcam, a damaged one comes now and then."""
_STILL = 1.0
"""Seconds for which the only picture of a file is shown before the file is opened again."""
_LONGEST = 60.0
"""Seconds for which a picture of a recording is shown at most: times that jump further are not to be waited for."""
_BEHIND = 0.5
"""Seconds by which a recording may lag behind itself before it goes on more slowly."""


class Reading:
    """Reads in a thread of its own and keeps the newest picture."""

    def __init__(self, source: Source, settings: CaptureSettings):
        self.source = source
        self.opened = False
        """Whether the source was ever open."""
        self.ended = False
        """Whether a recording came to its end, and is not played again."""
        self.trouble = ""
        """Why no picture comes, for people; "" while they come."""
        self.hopeless = ""
        """Why none will ever come."""
        self.dropped = 0
        """Pictures that came and were never published: damaged, or replaced by a newer one before."""
        self.paused = False
        """Whether recordings stand still. The main thread sets it."""
        self._settings = settings
        self._buffers = Buffers()
        self._change = threading.Condition()
        self._newest: NDArray[np.uint8] | None = None
        self._stop = threading.Event()
        self._moved = time.monotonic()
        self._times: deque[float] = deque(maxlen=1000)
        self._shown_at = 0.0
        """When the last picture of a recording was due."""
        self._last_index = -1
        self._thread = threading.Thread(target=self._run, name="reading", daemon=True)

    # The main thread.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end, sooner or later: nobody waits for it."""
        self._stop.set()

    def ends_within(self, seconds: float) -> bool:
        """Whether the thread has ended, after so many seconds at most. One that waits for a device may not."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def stuck_for(self) -> float:
        """Seconds since the thread last came back from the source."""
        return time.monotonic() - self._moved if self._thread.is_alive() else 0.0

    @property
    def rate_hz(self) -> float:
        """Pictures a second that came lately."""
        with self._change:
            times = self._times
            while len(times) > 2 and times[-1] - times[0] > _RATE_OVER:
                times.popleft()
            if len(times) < 2 or time.monotonic() - times[-1] > _RATE_OVER:
                return 0.0
            return round((len(times) - 1) / max(1e-9, times[-1] - times[0]), 1)

    def take(self, timeout: float) -> NDArray[np.uint8] | None:
        """The newest picture, (H, W, 3) RGB, if one comes within so many seconds and was not taken yet."""
        with self._change:
            if self._newest is None:
                self._change.wait(timeout)
            image, self._newest = self._newest, None
            return image

    def wait(self, timeout: float) -> None:
        """Wait at most so many seconds for anything to happen."""
        with self._change:
            self._change.wait(timeout)

    def forget_dropped(self) -> None:
        with self._change:
            self.dropped = 0

    # The thread.

    def _run(self) -> None:
        failed = 0
        while not self.stopped:
            begun = time.monotonic()
            try:
                self._open()
                self._play()
                if self.ended:
                    return
            except Exception as e:
                if isinstance(e, HopelessError) and not self.opened:
                    self._note(hopeless=str(e))
                    return
                failed = 0 if time.monotonic() - begun > _LIVES else failed
                pause = _PAUSES[min(failed, len(_PAUSES) - 1)]
                failed += 1
                why = str(e) if isinstance(e, CameraError) else f"{self.source.words}: {type(e).__name__}: {e}"
                self._note(trouble=f"{why}; trying again")
                self._wait(pause)
            finally:
                self.source.close()

    def _open(self) -> None:
        self._moved = time.monotonic()
        self.source.open()
        self._moved = time.monotonic()
        self._last_index = -1
        with self._change:
            self.opened = True
            self._change.notify()

    def _note(self, trouble: str = "", hopeless: str = "") -> None:
        with self._change:
            self.trouble, self.hopeless = trouble, hopeless
            self._change.notify()

    def _wait(self, seconds: float) -> None:
        """Sleep, yet end at once when told to; that is no sign of being stuck."""
        end = time.monotonic() + seconds
        while not self.stopped and (left := end - time.monotonic()) > 0:
            self._stop.wait(min(left, 1.0))
            self._moved = time.monotonic()

    def _play(self) -> None:
        """Read until the end, or until told to end."""
        source, anchor, came, skipped, damaged = self.source, None, 0, False, 0
        while not self.stopped:
            at = source.grab()
            self._moved = now = time.monotonic()
            if at is None:
                if self._at_end(came):
                    return
                self._shown_at += _STILL if came == 1 else 0
                anchor, came = None, 0
                continue
            came += 1
            if self._too_many(at):
                continue
            if source.recorded:
                while self.paused and not self.stopped:
                    self._wait(0.05)
                if anchor is None:  # the first of a round follows the last of the round before it in its own time
                    anchor = max(now, self._shown_at + (1 / source.rate if source.rate else 0)) - at
                late = time.monotonic() - anchor - at
                if late > _BEHIND or late < -_LONGEST:
                    anchor, late = anchor + late, 0.0
                elif source.rate and late > 1 / source.rate and not skipped:
                    skipped = True
                    self._count_dropped()
                    continue
                skipped = False
                self._wait(-late)
                self._shown_at = anchor + at
            try:
                image = source.retrieve(self._buffers)
            except DamagedError:
                damaged += 1
                if damaged > _MOST_DAMAGED:
                    raise
                self._count_dropped()
                continue
            damaged = 0
            self._put(image)

    def _at_end(self, came: int) -> bool:
        """Whether it is the last end. Raises CameraError where a source should have none."""
        source = self.source
        if not source.recorded:
            raise CameraError(f"{source.words}: it ended")
        if not came:
            raise CameraError(f"{source.words}: there is no picture in it")
        if not self._settings.loop:
            with self._change:
                self.ended, self.trouble = True, f"{source.words}: the end"
                self._change.notify()
            return True
        source.close()
        self._open()
        return False

    def _too_many(self, at: float) -> bool:
        """Whether a picture is one more than were asked for; such are not counted as dropped."""
        fps, rate = self._settings.fps, self.source.rate
        if not fps or (rate and rate <= fps * 1.05):
            return False
        index = int(at * fps + 0.01)
        if index == self._last_index:
            return True
        self._last_index = index
        return False

    def _count_dropped(self) -> None:
        with self._change:
            self.dropped += 1

    def _put(self, image: NDArray[np.uint8]) -> None:
        with self._change:
            self._moved = time.monotonic()
            self._times.append(self._moved)
            if self._newest is not None:
                self.dropped += 1
            self._newest, self.trouble = image, ""
            self._change.notify()
