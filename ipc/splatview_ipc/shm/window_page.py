"""The page that a process shares with the window that it opened (`splatview.Window`): what to show, and how it is.

One small sealed segment, written with plain stores on both sides, so that neither ever waits for the other: not for a
message to be read, nor for a pipe that is full. The caller's half says which of its streams is to be seen, the window's
half whether it is open, how large it is and how many pictures it draws.

Invariants
1. Each word has one writer: SHOWN, SWITCHES and RUN the caller, the others the window.
2. SWITCHES grows behind what it counts, STATE is written behind what it tells of (size, reason): whoever sees the new
   one, and then looks at the rest, sees the rest as new or newer. What is torn by yet another `show` is followed by
   another count, and looked at again.
3. Nothing read here is trusted for more than a text that is shown or a run that is looked up: lengths are cut to the
   room that there is.
"""

from __future__ import annotations

import mmap
import os
from typing import Annotated

import msgspec
from msgspec import Meta

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.shm.segment import PAGE, Segment, close_map
from splatview_ipc.shm.slot_layout import full_fence, store_fence

NOTHING, IMAGE, SCENE = range(3)
"""What is to be seen."""
STARTING, OPEN, CLOSED, FAILED = range(4)
"""How the window is. CLOSED: it was open; FAILED: it could not be opened, or came to an unforeseen end."""

_MAGIC = 0x31_57_4F_44_4E_49_57_53
_MAGIC_WORD, _SHOWN, _SWITCHES, _RUN, _STATE, _WIDTH, _HEIGHT, _FPS, _REASON = range(9)
_RUN_AT, _RUN_BYTES = 1024, 64
_REASON_AT, _REASON_BYTES = 2048, 2048


MIN_SIDE, MAX_SIDE = 16, 16384
"""Points of a window's side."""
_Side = Annotated[int, Meta(ge=MIN_SIDE, le=MAX_SIDE)]
_Name = Annotated[str, Meta(min_length=1, max_length=limits.MAX_NAME)]


class WindowSettings(msgspec.Struct, frozen=True):
    """What a window is started with."""

    width: _Side
    height: _Side
    title: Annotated[str, Meta(max_length=limits.MAX_NAME)]
    pid: Annotated[int, Meta(ge=1, lt=2**31)]
    """The caller's."""
    image: _Name
    scene: _Name
    """The names of its two streams."""
    page: Annotated[int, Meta(ge=0, lt=2**31)]
    """The descriptor of the page."""


class WindowPage:
    """Either side's view of the page."""

    def __init__(self, fd: int | None = None) -> None:
        """`fd`: of the page that the caller made, which is closed; None: make one. Raises SharingError."""
        self._segment: Segment | None = None
        if fd is None:
            self._segment = Segment(PAGE, "window")
            self._map = self._segment.map
        else:
            try:
                self._map = mmap.mmap(fd, PAGE)
            except (OSError, ValueError) as e:
                raise SharingError(f"the window's page cannot be mapped: {e}") from None
            finally:
                os.close(fd)
        self._words = memoryview(self._map).cast("Q")
        if fd is None:
            self._words[_MAGIC_WORD] = _MAGIC
        elif self._words[_MAGIC_WORD] != _MAGIC:
            self.close()
            raise SharingError("the window's page is none")

    @property
    def fd(self) -> int:
        """What the other side gets; on the side that made it."""
        assert self._segment is not None
        return self._segment.fd

    # The caller's half.

    def show(self, what: int, run: str) -> None:
        """Have IMAGE or SCENE shown, of the run with this id."""
        self._write(_RUN, _RUN_AT, run.encode()[:_RUN_BYTES])
        self._words[_SHOWN] = what
        store_fence()
        self._words[_SWITCHES] += 1

    @property
    def switches(self) -> int:
        """Counts the calls of `show`."""
        return self._words[_SWITCHES]

    @property
    def shown(self) -> tuple[int, str]:
        """NOTHING, IMAGE or SCENE, and the run's id; to be asked for after `switches`."""
        full_fence()
        return self._words[_SHOWN], self._read(_RUN, _RUN_AT, _RUN_BYTES)

    # The window's half.

    def tell(self, state: int, size: tuple[int, int], fps: float) -> None:
        """How the window is: its width and height in pixels, and pictures drawn in the last second."""
        self._words[_WIDTH], self._words[_HEIGHT] = size
        self._words[_FPS] = round(fps * 1000)
        store_fence()
        self._words[_STATE] = state

    def end(self, state: int, reason: str = "") -> None:
        """CLOSED or FAILED, and why."""
        self._write(_REASON, _REASON_AT, reason.encode()[:_REASON_BYTES])
        self._words[_FPS] = 0
        store_fence()
        self._words[_STATE] = state

    @property
    def state(self) -> int:
        return self._words[_STATE]

    @property
    def size(self) -> tuple[int, int]:
        """(0, 0) before it is open."""
        return self._words[_WIDTH], self._words[_HEIGHT]

    @property
    def fps(self) -> float:
        return self._words[_FPS] / 1000

    @property
    def reason(self) -> str:
        return self._read(_REASON, _REASON_AT, _REASON_BYTES)

    def _write(self, word: int, at: int, text: bytes) -> None:
        self._words[word] = 0
        store_fence()
        self._map[at: at + len(text)] = text
        store_fence()
        self._words[word] = len(text)

    def _read(self, word: int, at: int, most: int) -> str:
        return self._map[at: at + min(self._words[word], most)].decode(errors="replace")

    def close(self) -> None:
        """Give it back. Idempotent."""
        self._words.release()
        if self._segment is not None:
            self._segment.close()
        else:
            close_map(self._map)
