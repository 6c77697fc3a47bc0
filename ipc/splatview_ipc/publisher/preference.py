"""Where a stream's CUDA tensors lie from publish to publish, and which way suits that best."""

from __future__ import annotations

from operator import is_
from typing import Any

_ENOUGH = 3
"""Publishes in a row that change our mind."""


class Place:
    """Notices when the tensors of a stream come to lie somewhere else."""

    def __init__(self) -> None:
        from torch import Tensor

        self.address = Tensor.data_ptr
        """Of a tensor."""
        self.number = 0
        """Counts the places."""
        self.looks = 0
        """Counts how the tensors have looked: dtypes, shapes, strides, devices."""
        self.addresses: list[int] = []
        """Of the newest tensors; empty where they are arrays of another library."""
        self._tensors: tuple[Any, ...] = ()
        self._looks: list[Any] = []

    def same(self, tensors: tuple[Any, ...]) -> bool:
        """Whether these lie where the last ones lay, and in the same shape. Costs about a microsecond."""
        try:
            # The very tensors of the last time stay where they are, unless somebody assigns to `.data`.
            addresses = [*map(self.address, tensors)]
            there = addresses == self.addresses
            if there and (tensors is self._tensors or all(map(is_, tensors, self._tensors))):
                return True
            looks: list[Any] = [(t.dtype, t.shape, t.stride(), t.get_device()) for t in tensors]
        except (AttributeError, TypeError):  # arrays of another library
            addresses, looks, there = [], [object()], False
        self._tensors, self.addresses = tensors, addresses
        if looks != self._looks:
            self._looks = looks
            self.looks += 1
        elif there:
            return True
        self.number += 1
        return False

    def forget(self) -> None:
        """Keep no tensor any more."""
        self._tensors, self.addresses, self._looks = (), [], []


class Preference:
    """Sharing in place suits tensors that stay where they are, copying those that are new at every call."""

    def __init__(self, kind: str):
        self.wishes: tuple[bool | None, bool] = (None, False)
        """The caller's `copy` and `live`."""
        self._in_place = kind == "gaussians"
        self.place: int | None = -1
        """Place of the newest tensors; None after `forget`."""
        self.expected: bool | None = None
        """Whether the next tensors stay where they are, if they are like the last. If so, it is enough to say where
        they lie, in `place`; `saw` need not be called."""
        self._against = 0

    def saw(self, place: int) -> bool:
        """Take in where the tensors of a publish lie; whether this changes `ways`.

        Only a row of publishes that all speak against the present choice changes it: a densification every hundred
        steps does not, nor does one tensor that happens to come twice.
        """
        known, stayed, self.place = self.place is not None, place == self.place, place
        if not known:
            return False
        if stayed == self._in_place:
            self._against = 0
            self.expected = stayed
            return False
        self._against += 1
        self.expected = None
        if self._against < _ENOUGH:
            return False
        self._in_place, self._against, self.expected = stayed, 0, stayed
        return self.wishes == (None, False)

    def forget(self) -> None:
        """Draw no conclusion from the next place: it differs from the last because `Place.forget` was called."""
        self.place = None

    def ways(self) -> tuple[str, ...]:
        """The ways for CUDA tensors, the best first."""
        copy, live = self.wishes
        if copy is True:
            return ("device-ring", "host")
        if copy is False:
            return ("in-place", "host")
        if live or self._in_place:
            return ("in-place", "device-ring", "host")
        return ("device-ring", "in-place", "host")
