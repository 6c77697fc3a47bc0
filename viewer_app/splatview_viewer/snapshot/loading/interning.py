"""Texts, frames, stacks, streams and pools of a snapshot, each kept once."""

from __future__ import annotations

from array import array
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.snapshot.loading.schema import FrameEntry, convert_value
from splatview_viewer.snapshot.model import NO_STACK, UNKNOWN_POOL, Stacks, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_TABLE = 2**15 - 1
"""The highest index of a stream or a pool."""
MAX_LETTERS = 1 << 14
"""Letters of a text that are kept: names of C++ templates have thousands."""
MAX_FRAMES = 4096
"""Innermost frames of a stack that are kept; Python itself ends at 1000."""
MAX_KNOWN = 1 << 18
"""Most stacks and frames that are known by identity; a file that shares none would hold all
of them."""
MAX_LINE = 2**31 - 1
SAMPLE = 4
"""Every fourth frame of a stack is part of the key that finds stacks known by identity."""
MAX_ALIKE = 16
"""Known stacks of one key that are compared with a new one."""
NO_TEXT = (None, "", "N/A")
_FLAT = (str, int, float, bool, type(None))

KnownStack = tuple[Any, int]
"""A list of frames as a file holds it, and the id of its stack."""


class Tables:
    """Gives the same id to equal texts, frames, stacks, streams and pools of all devices.

    PyTorch's files share the dictionaries of frames, but each entry has a list of its own:
    the identities of every fourth frame lead to few lists, which are compared; that mostly
    looks at identities too. What is known is held, which keeps identities valid.
    """

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}
        self.pools: dict[tuple[int, int], int] = {(0, 0): 0}
        self.was_cut = False
        """A text or a stack was too long to be kept completely."""
        self._texts: dict[str, int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}
        """Frames as indices of the file, the line, and the index of the function."""
        self._stacks: dict[bytes, int] = {}
        """Stacks as bytes of their frames' ids, int32."""
        self._known_frames: dict[int, tuple[dict[Any, Any], int]] = {}
        """Frames as a file holds them, and their ids, by identity."""
        self._known_stacks: dict[tuple[int, ...], list[KnownStack]] = {}
        """Stacks by the identities of some of their frames."""
        self._frames_are_flat = True
        """No known frame holds other values, which two of them could compare without end
        if they hold each other."""

    def stacks(self, lists: Sequence[Any], name_of: Callable[[int], str]) -> np.ndarray:
        """Return the ids of stacks as a file holds them, int32 (N,).

        Args:
            lists: lists of dictionaries; None: no stack.
            name_of: names the i-th of them in an error.

        Raises:
            FileError: one of them is no stack.
        """
        # This loop runs once for each event, and is therefore not split: loading a million
        # events takes 4 s, in which a call for each of them would be seen.
        ids = []
        known_stacks = self._known_stacks
        for i, value in enumerate(lists):
            frames = value
            if not frames or type(frames) is not list:
                if frames is None or frames in ((), []):
                    ids.append(NO_STACK)
                    continue
                frames = convert_value(frames, list[Any], name_of(i))
            if len(frames) > MAX_FRAMES:
                frames = frames[:MAX_FRAMES]
                self.was_cut = True
            key = tuple(map(id, frames[::SAMPLE]))
            alike = known_stacks.get(key, ())
            for stack_frames, stack_id in alike:
                if self._frames_are_flat:
                    is_same = stack_frames == frames
                else:
                    is_same = _are_identical(stack_frames, frames)
                if is_same:
                    ids.append(stack_id)
                    break
            else:
                stack_id = self._intern_stack(frames, name_of(i))
                ids.append(stack_id)
                if len(known_stacks) >= MAX_KNOWN:
                    known_stacks.clear()
                known_stacks[key] = [(frames, stack_id), *alike[:MAX_ALIKE]]
        return np.array(ids, np.int32)

    def _intern_stack(self, frames: list[Any], name: str) -> int:
        """Return the id of a stack. `name`: its name in an error. Raises FileError."""
        known_frames = self._known_frames
        frame_ids = []
        for i, frame in enumerate(frames):
            known_frame = known_frames.get(id(frame))
            if known_frame is not None:
                frame_ids.append(known_frame[1])
            else:
                frame_ids.append(self.frame(frame, f"{name}[{i}]"))
        key = array("i", frame_ids).tobytes()
        return self._stacks.setdefault(key, len(self._stacks))

    def frame(self, frame: Any, name: str) -> int:
        """Return the id of a frame as a file holds it.

        Args:
            name: the frame's name in an error.

        Raises:
            FileError: it is no frame.
        """
        entry = convert_value(frame, FrameEntry, name)
        self._frames_are_flat &= all(type(v) in _FLAT for v in frame.values())
        # Frames of C++ may have any line where none is known.
        line = entry.line if abs(entry.line) <= MAX_LINE else 0
        key = (self._intern_text(entry.filename), line, self._intern_text(entry.name))
        frame_id = self._frames.setdefault(key, len(self._frames))
        if len(self._known_frames) >= MAX_KNOWN:
            self._known_frames.clear()
        self._known_frames[id(frame)] = (frame, frame_id)
        return frame_id

    def stream(self, value: int) -> int:
        """Return the index of a stream. Raises FileError."""
        return self._intern(self.streams, value, "streams")

    def pool(self, value: tuple[int, int] | None) -> int:
        """Return the index of a pool; UNKNOWN_POOL for None. Raises FileError."""
        if value is None:
            return UNKNOWN_POOL
        return self._intern(self.pools, value, "pools")

    @staticmethod
    def _intern(table: dict[Any, int], value: Any, plural: str) -> int:
        """Return the index of a value in a table. Raises FileError if that is full."""
        index = table.setdefault(value, len(table))
        if index > MAX_TABLE:
            raise FileError(f"more than {MAX_TABLE + 1:,} {plural}")
        return index

    def text(self, value: str | None) -> int:
        """Return the index of a text; -1 where the file has none."""
        if value is None or value in NO_TEXT:
            return -1
        return self._intern_text(value)

    def _intern_text(self, text: str) -> int:
        """Return the index of a text, of which the first MAX_LETTERS are kept."""
        if len(text) > MAX_LETTERS:
            self.was_cut = True
            text = text[:MAX_LETTERS]
        return self._texts.setdefault(text, len(self._texts))

    def finish(self) -> tuple[Texts, Stacks]:
        """Return all texts and stacks as columns."""
        encoded = [text.encode("utf-8", "replace") for text in self._texts]
        texts = Texts(
            blob=np.frombuffer(b"".join(encoded), np.uint8),
            start=_offsets([len(text) for text in encoded]),
        )
        frames = np.array(list(self._frames), np.int32).reshape(-1, 3)
        file, line, name = (np.ascontiguousarray(column) for column in frames.T)
        stacks = Stacks(
            file=file,
            line=line,
            name=name,
            start=_offsets([len(key) // 4 for key in self._stacks]),
            frames=np.frombuffer(b"".join(self._stacks), np.int32),
        )
        return texts, stacks


def _are_identical(known_frames: list[Any], frames: list[Any]) -> bool:
    """Return whether two lists hold the same objects.

    Slower than comparing them, but looks into none of them.
    """
    return len(known_frames) == len(frames) and all(map(is_, known_frames, frames))


def _offsets(lengths: list[int]) -> np.ndarray:
    """Return where each of several pieces begins, and the end, int64 (n + 1,)."""
    ends = np.cumsum(np.array(lengths, np.int64))
    return np.concatenate([np.zeros(1, np.int64), ends])
