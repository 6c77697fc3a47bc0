"""The pace at which a page takes packed scenes, and the bytes on their way to it.

The rate is that at which the page answers while its line is busy: what the page says of
its own time does not matter, and it cannot have taken what was not sent.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

FIRST_RATE = 1.5e6
"""Bytes a second of a line that nothing is known of."""
IN_FLIGHT_S = 0.25
"""Seconds of the line that are on their way at most, beside its latency."""
_LEAST_WINDOW = 96 * 1024
"""Bytes that may always be on their way, so that there is something to measure."""
_MOST_SENT = 4096
"""Messages that may be on their way: of a scene without Gaussians they have no bytes."""
_MAX_LATENCY_S = 1.0
_SAMPLE_BYTES = 128 * 1024
_SAMPLE_S = 0.1
"""Bytes or seconds from which on a rate can be told."""
_WEIGHT = 0.3
"""Weight of one measurement in the average of the rate."""


class _SentBytes(NamedTuple):
    message_number: int
    size_bytes: int
    sent_s: float


class ScenePace:
    """Flow control of one page's scenes; `now` is in seconds by any clock."""

    def __init__(self) -> None:
        self.in_flight = 0
        """Bytes that were sent and not taken yet."""
        self._sent: deque[_SentBytes] = deque()
        self._rate: float | None = None
        self._latency_s: float | None = None
        """The least seconds from sending something to the answer."""
        self._measured_from = 0.0
        self._measured_bytes = 0
        self._idle_from = 0.0

    @property
    def rate(self) -> float:
        """Bytes a second that the line carries, as far as it is known."""
        return self._rate or FIRST_RATE

    @property
    def may_send(self) -> bool:
        """True if more may be on its way."""
        if self._latency_s is None:
            latency_s = 0.0
        else:
            latency_s = min(self._latency_s, _MAX_LATENCY_S)
        window = self.rate * (IN_FLIGHT_S + latency_s)
        is_full = len(self._sent) >= _MOST_SENT
        return self.in_flight < max(window, _LEAST_WINDOW) and not is_full

    def sent(self, message_number: int, size_bytes: int, now: float) -> None:
        """Note what was passed to the network. Numbers rise."""
        if not self._sent:
            # What was idle does not count.
            self._measured_from += now - self._idle_from
        self._sent.append(_SentBytes(message_number, size_bytes, now))
        self.in_flight += size_bytes

    def note_taken(self, message_number: int, now: float) -> None:
        """Note that the page has taken all up to a number, as far as it was sent."""
        while self._sent and self._sent[0].message_number <= message_number:
            sent = self._sent.popleft()
            self.in_flight -= sent.size_bytes
            self._measured_bytes += sent.size_bytes
            if sent.size_bytes:
                self._note_latency(now - sent.sent_s)
        if not self._sent:
            self._idle_from = now
        seconds = now - self._measured_from
        if self._measured_bytes >= _SAMPLE_BYTES or seconds >= _SAMPLE_S:
            self._note_rate(self._measured_bytes / max(seconds, 1e-3))
            self._measured_from = now
            self._measured_bytes = 0

    def _note_latency(self, seconds: float) -> None:
        if self._latency_s is None or seconds < self._latency_s:
            self._latency_s = seconds

    def _note_rate(self, rate: float) -> None:
        """Take a rate into the average."""
        if not rate:
            return
        if self._rate is None:
            self._rate = rate
        else:
            self._rate += _WEIGHT * (rate - self._rate)
