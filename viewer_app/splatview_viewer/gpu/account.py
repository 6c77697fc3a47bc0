"""The account of a GPU's time: a share of each second comes in, works are paid from it.

Plain arithmetic, no graphics.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST_S = 0.05
"""Seconds of its share that may be saved up, so that the first picture after a rest comes
at once."""


class _Payment(NamedTuple):
    paid_at: float
    ms: float
    is_worker: bool = False
    """Another program worked, on the viewer's request."""


class Account:
    """Milliseconds of a GPU that the viewer may spend.

    They run out only while `shared` is set.
    """

    def __init__(self, share: float, clock: Callable[[], float]) -> None:
        """Start full.

        Args:
            share: over 0 up to 1; 1 means no limit.
            clock: seconds.

        Raises:
            ValueError: `share` is something else.
        """
        if not 0 < share <= 1:
            raise ValueError(
                f"share is {share:g}, not a number over 0 up to 1 (1: no limit)"
            )
        self.share = share
        self.shared = False
        """True while another process needs the GPU. Otherwise nothing is held back."""
        self.goal_ms = 0.0
        """Milliseconds that are being saved up, beyond those for a first picture."""
        self.owed_ms = 0.0
        """Milliseconds that workers took beyond what was paid in advance; less than 0:
        paid for what they have not done yet."""
        self._clock = clock
        self._balance_ms = _BURST_S * self.ms_per_second
        """Less than 0: debts."""
        self._counted_at = clock()
        self._payments: deque[_Payment] = deque()

    @property
    def limited(self) -> bool:
        """True while anything is held back."""
        return self.shared and self.share < 1

    @property
    def ms_per_second(self) -> float:
        """Milliseconds of the GPU that may be spent in a second."""
        return self.share * 1e3

    def pay(self, ms: float) -> None:
        """Pay for a work of the GPU's."""
        now = self._clock()
        self.balance(now)
        if self.limited:
            self._balance_ms -= ms
        self._payments.append(_Payment(now, ms))

    def pay_in_advance(self, ms: float) -> None:
        """Pay for what a worker is asked for, and what is owed for the last one."""
        if self.limited:
            self._balance_ms -= ms + self.owed_ms
            self.owed_ms = -ms
        else:
            self.owed_ms = 0.0

    def count_worker(self, ms: float) -> None:
        """Take note of what a worker did.

        What was not paid in advance is owed: no debts, which would hold back the
        viewer's own pictures.
        """
        if self.limited:
            self.owed_ms += ms
        self._payments.append(_Payment(self._clock(), ms, is_worker=True))

    def balance(self, now: float) -> float:
        """Return the milliseconds that may be spent now; less than 0: debts."""
        earned = (now - self._counted_at) * self.ms_per_second
        self._counted_at = now
        limit = max(_BURST_S * self.ms_per_second, self.goal_ms)
        if self.limited:
            self._balance_ms = min(self._balance_ms + max(earned, 0.0), limit)
        else:
            self._balance_ms = limit
        return self._balance_ms

    @property
    def used_share(self) -> float:
        """Share of the last second that the GPU worked for the viewer, workers included."""
        return sum(payment.ms for payment in self._last_payments()) * 1e-3

    @property
    def worker_share(self) -> float:
        """Part of `used_share` that workers used."""
        payments = self._last_payments()
        return sum(payment.ms for payment in payments if payment.is_worker) * 1e-3

    def _last_payments(self) -> deque[_Payment]:
        """Return the payments of the last second."""
        now = self._clock()
        while self._payments and self._payments[0].paid_at < now - 1:
            self._payments.popleft()
        return self._payments
