"""How much room frames get whose size is known only once they are drawn."""

from __future__ import annotations

from viewer_app.errors import RendererError

SLOTS_MAX = (1 << 31) - 1
"""gsplat's rasteriser counts pairs of Gaussian and tile in 32 bits."""


class Capacity:
    """How many slots for pairs of Gaussian and tile: a quarter more than the frames of late needed.

    Grows at once, in steps that are at most an eighth; shrinks when 120 frames in a row needed less than 60 %.
    """

    FIRST = 1 << 16
    FRAMES = 120

    def __init__(self) -> None:
        self.slots = self.FIRST
        self._peak = 0
        self._frames = 0

    def at_least(self, gaussians: int) -> None:
        """A scene of so many Gaussians was loaded: a first guess, if it is more than there is."""
        self.slots = max(self.slots, self.rounded(gaussians * 3 // 2))

    def saw(self, needed: int) -> bool:
        """A frame needed so many. True: it had too few, and there are more now.

        Raises:
            RendererError: it needs more than can be drawn.
        """
        if needed > SLOTS_MAX:
            raise RendererError(f"the Gaussians cover {needed:,} tiles of the picture, more than gsplat can draw "
                                f"({SLOTS_MAX:,}); a smaller picture has fewer")
        if needed > self.slots:
            self.slots = self.rounded(needed * 5 // 4)
            self._peak = self._frames = 0
            return True
        self._peak = max(self._peak, needed)
        self._frames += 1
        if self._frames >= self.FRAMES:
            if self._peak < 0.6 * self.slots:
                self.slots = self.rounded(self._peak * 5 // 4)
            self._peak = self._frames = 0
        return False

    @classmethod
    def rounded(cls, slots: int) -> int:
        """Up to one of eight steps per power of two, so that there are few different numbers and so few graphs."""
        slots = max(slots, cls.FIRST)
        step = 1 << max(slots.bit_length() - 4, 0)
        return min(-(-slots // step) * step, SLOTS_MAX)
