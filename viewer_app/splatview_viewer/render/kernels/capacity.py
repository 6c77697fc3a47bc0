"""How much room frames get whose size is known only once they are drawn."""

from __future__ import annotations

from splatview_viewer.render.work import PAIRS_MAX


class Capacity:
    """How many slots for pairs of Gaussian and tile: a quarter more than the frames of late needed, up to `most`.

    Grows at once, in steps that are at most an eighth; shrinks when 120 frames in a row needed less than 60 %.
    """

    FIRST = 1 << 16
    FRAMES = 120

    def __init__(self, most: int = PAIRS_MAX) -> None:
        self.slots = self.FIRST
        self.wanted = 0
        """What the last frame needed."""
        self._most = self._now_most = most
        self._peak = 0
        self._frames = 0

    @property
    def full(self) -> bool:
        """Whether the last frame lacks Gaussians, and no later one gets more room: the farthest are left out."""
        return self.wanted > self.slots == self._now_most

    def at_least(self, gaussians: int) -> None:
        """A scene of so many Gaussians was loaded: a first guess, if it is more than there is."""
        self._now_most = self._most
        self.slots = max(self.slots, self._rounded(gaussians * 3 // 2))

    def saw(self, needed: int) -> bool:
        """A frame needed so many. True: it had too few, and there are more now."""
        self.wanted = needed
        if needed > self.slots:
            before, self.slots = self.slots, self._rounded(needed * 5 // 4)
            self._peak = self._frames = 0
            return self.slots > before
        self._peak = max(self._peak, needed)
        self._frames += 1
        if self._frames >= self.FRAMES:
            if self._peak < 0.6 * self.slots:
                self.slots = self._rounded(self._peak * 5 // 4)
            self._peak = self._frames = 0
        return False

    def shrink(self) -> bool:
        """There was no memory for so many: no more than half of them until another scene comes. False: there are so
        few that it is not these that take the memory."""
        if self.slots <= self.FIRST:
            return False
        self.slots = self._now_most = max(self.slots // 2, self.FIRST)
        self._peak = self._frames = 0
        return True

    def _rounded(self, slots: int) -> int:
        return min(self.rounded(slots), self._now_most)

    @classmethod
    def rounded(cls, slots: int) -> int:
        """Up to one of eight steps per power of two, so that there are few different numbers and so few graphs."""
        slots = max(slots, cls.FIRST)
        step = 1 << max(slots.bit_length() - 4, 0)
        return -(-slots // step) * step
