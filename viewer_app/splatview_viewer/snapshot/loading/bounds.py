"""Limits on the work that a snapshot's file may cause.

A pickle can name one object many times: ten lists that each hold the one before ten times
are a file of 200 bytes and ten thousand million values. What is converted is therefore
counted as often as it is met, and compared with the file's size: each value that PyTorch
writes takes at least one byte of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.repeats import LEAST_VALUES

if TYPE_CHECKING:
    from collections.abc import Collection

SHARED_FRAMES = 16
"""Frames of stacks for each other value: PyTorch shares frames, and may share whole stacks,
among entries."""


class Budget:
    """Counts the values that are converted, as often as each is met."""

    def __init__(self, file_bytes: int) -> None:
        """Allow as many values as a pickle of this size can hold.

        Args:
            file_bytes: size of the pickle, unpacked; 0: it is not from a file, and
                nothing is refused.
        """
        self._file_bytes = file_bytes
        self._remaining = LEAST_VALUES + file_bytes

    def spend(self, count: int, name: str) -> None:
        """Count values of `name`.

        Raises:
            FileError: they are more than a file of this size holds.
        """
        self._remaining -= count
        if not self._file_bytes or self._remaining >= 0:
            return
        raise FileError(
            "made to exhaust time or memory: the same values are named again and again in "
            f"{name}, more than {LEAST_VALUES + self._file_bytes:,} in all; PyTorch writes "
            f"none twice into a file of {self._file_bytes:,} bytes"
        )

    def check(self, data: dict[str, Any]) -> None:
        """Count all values of a snapshot but the entries of its traces.

        Raises:
            FileError: as `spend` does.
        """
        self.spend(len(data), "the snapshot")
        for key in ("segments", "host_segments"):
            for segment in _sequence(data.get(key)):
                self.spend(1 + _length(segment), key)
                if type(segment) is dict:
                    blocks = segment.get("blocks")
                else:
                    blocks = None
                for block in _sequence(blocks):
                    self.spend(1 + _length(block), f"blocks of {key}")
        for annotation in _sequence(data.get("external_annotations")):
            self.spend(1 + _length(annotation), "external_annotations")
        for key in ("device_traces", "host_traces"):
            for trace in _sequence(data.get(key)):
                self.spend(1 + _length(trace), key)

    def check_entries(self, entries: list[Any], trace_name: str) -> None:
        """Count entries of a trace with the values that they hold.

        Raises:
            FileError: as `spend` does.
        """
        mappings = [entry for entry in entries if type(entry) is dict]
        frame_count = sum(_length(entry.get("frames")) for entry in mappings)
        value_count = sum(map(len, mappings))
        self.spend(value_count + frame_count // SHARED_FRAMES, trace_name)


_SEQUENCES = (list, tuple, set, frozenset)
"""Types that are converted where a list is expected."""


def _sequence(value: Any) -> Collection[Any]:
    """Return the value if it is a sequence, otherwise an empty one."""
    if type(value) in _SEQUENCES:
        return value
    return ()


def _length(value: Any) -> int:
    """Return the length of a container; 0 for other values."""
    if type(value) in (dict, *_SEQUENCES):
        return len(value)
    return 0
