"""The helper thread's part of a stream: what `publish` leaves, and what is due.

That is making the memory of a transport, versions that came too soon after the last one
or found no free slot, viewers that attached after the publish, copies that may have
caught tensors amid a write, and live streams.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_ipc.cuda import driver
from splatview_ipc.publisher.channel import LateCopy, count_inplace
from splatview_ipc.publisher.stream_channels import StreamChannels
from splatview_ipc.publisher.transport_choice import STAYING_KINDS
from splatview_ipc.transports import TRANSPORTS

if TYPE_CHECKING:
    import torch

    from splatview_ipc.publisher.channel import Channel, Value
    from splatview_ipc.transports import Writer

GRACE_S = 0.1
"""Seconds for the next publish to write what the last one left to the helper."""
BUSY_GRACE_S = 0.4
"""The same at most for a trainer that goes on publishing: it is looked at so seldom.

Viewers ask for the last version sooner (`RemoteStream.measure`).
"""
RETRY_AWAITED_S = 0.001
"""Seconds until a version that is awaited is tried again, the first time."""
SETTLE_S = 0.02
"""Seconds after a late copy at which in-place operations are counted again."""
LIVE_PERIOD_S = 1 / 30
"""Seconds between two copies of a live stream, which changes without a publish."""


class StreamTurns(StreamChannels):
    """A stream whose helper thread brings viewers up to date."""

    def turn(self, now: float) -> float | None:
        """Do what `publish` left, and what is due.

        Returns when to be called again, in the clock's seconds; None: when woken. At
        `next_look` it is to be called too, unless the trainer `goes_on`.
        """
        self._helper_knows = False  # first: whatever is left from now on wakes us again
        if self._must_drop:
            with self._lock:
                self._must_drop = False
                self._drop_writers()
        self.next_look = math.inf
        if self._newest is None or not self._channels:
            return None
        due = self._turn_channels(now)
        grace_ends = self._published_at + GRACE_S
        if self._lacks_awaited() or (now >= grace_ends and self.is_behind()):
            self._catch_up(now)
            # This thread comes again by itself, so a busy trainer need not wake it.
            self._helper_knows = True
            return min(due, now + self._retry_s(now))
        if now < grace_ends:
            self._helper_knows = True
            self.next_look = grace_ends
        elif self.live and not all(c.is_zero_copy for c in self._channels.values()):
            due = min(due, self._follow_live(now))
        else:
            due = min(due, self._check_late_copy(now))
        return due if due < math.inf else None

    def goes_on(self, now: float) -> bool:
        """Return whether the trainer has published since `next_look` was set.

        It writes what it leaves by its next publish then: no turn is needed, and a look
        costs a fraction of one.
        """
        grace_ends = self._published_at + GRACE_S
        if now >= grace_ends:
            return False
        self.next_look = max(grace_ends, now + BUSY_GRACE_S)
        return True

    def _turn_channels(self, now: float) -> float:
        """Make missing writers, and give each its turn; return when the next is due."""
        due = math.inf
        for channel in list(self._channels.values()):
            if channel.retry_at > now:
                due = min(due, channel.retry_at)
            else:
                self._make_writer(channel)
            with self._lock:
                if channel.writer is not None:
                    writer_due = channel.writer.turn(now)
                    due = min(due, math.inf if writer_due is None else writer_due)
        return due

    def _make_writer(self, channel: Channel) -> None:
        """Make a writer that takes the newest value, unless the channel has one.

        Allocates outside the lock, since that takes long.
        """
        value = self._newest
        if value is None:
            return
        if channel.writer is not None and not channel.is_outgrown:
            return
        choice = self._choice
        transport = channel.transport
        if transport not in choice.suitable():
            return  # its viewers are choosing another one
        if transport in choice.failures and not channel.retry_at:
            return
        layout, (tensors, _) = value
        with self._lock, choice.behind_trainer(layout.device):
            fields = layout.frame(tensors) or _no_field(layout.device)
            writer = channel.writer
            channel.is_outgrown = False
            if writer is not None and writer.fits(fields):
                return
        try:
            # A table that outgrew its ring goes on growing; a picture of another size
            # does not.
            has_outgrown = writer is not None and self.kind != "image"
            is_growing = self.kind in STAYING_KINDS or has_outgrown
            new_writer = TRANSPORTS[transport].writer(fields, is_growing)
        except Exception as error:
            with self._lock:
                self._fail(channel, layout, error)
            return
        with self._lock:
            unused_writer: Writer | None = new_writer
            if not self._has_ended:
                unused_writer = channel.take_writer()
                channel.writer = new_writer
            if channel.retry_at:
                channel.retry_at = 0.0
                choice.remove_failure(transport)
        if unused_writer is not None:
            unused_writer.close()

    def _retry_s(self, now: float) -> float:
        """Return the seconds until what could not be written is tried again.

        For a reader that waits they double from try to try.
        """
        if not self._lacks_awaited():
            return GRACE_S
        waited_s = now - self._published_at
        return min(GRACE_S, max(RETRY_AWAITED_S, waited_s))

    def _version_of(self, value: Value) -> int:
        """Return the number of the newest value; 0 where another one is newest now."""
        if self._numbered is not value:
            # Its publish has not come so far.
            return self._take_version_number(value)
        version_number = self._published_version
        return version_number if self._newest is value else 0

    def _take_version_number(self, value: Value) -> int:
        """Return a new number for the newest value; 0 where another one is newest now.

        A publish sets its value before it takes its number. So the number of a newer
        value is higher than the one that is returned, and no reader that waits for that
        value is given this one.
        """
        version_number = next(self._version_numbers)
        if self._newest is not value:
            return 0
        self._helper_version = version_number
        return version_number

    def _write_late(
        self,
        channel: Channel,
        value: Value,
        version: int,
        now: float,
        confirmed: bool = True,
    ) -> None:
        """Write a value from the helper thread, on a stream of ours on a GPU."""
        self._write(channel, value, version, now, confirmed)
        _, (tensors, _) = value
        if not channel.is_zero_copy:
            # The trainer may let go of them before the copy has been made.
            driver.keep_for_current_stream(tensors)

    def _announce_version(self) -> None:
        """Tell viewers the newest version, also where a publish does so just now."""
        announced = -1
        while announced < self.version:
            announced = self.version
            self._control.words[self._version_word] = announced

    def _catch_up(self, now: float) -> None:
        """Write the newest value for viewers that its own publish did not reach."""
        with self._lock:
            value = self._newest
            if value is None:
                return
            version = self._version_of(value)
            if not version:
                return
            layout, (tensors, _) = value
            with self._choice.behind_trainer(layout.device) as can_queue:
                if not can_queue:
                    return
                counts = count_inplace(tensors)
                is_confirmed = counts is not None
                # The last version is shown however few their viewers take.
                has_stopped = now >= self._published_at + GRACE_S
                for channel in self._channels.values():
                    is_due = has_stopped or self._is_awaited(channel)
                    if is_due and self._lacks(channel, value):
                        self._write_late(channel, value, version, now, is_confirmed)
                self._next_write_at = 0.0  # the next publish tells whether they move
            self._late_copy = None
            if counts:
                self._late_copy = LateCopy(value, counts, now + SETTLE_S)
        self._announce_version()

    def _check_late_copy(self, now: float) -> float:
        """Copy once more, as not confirmed, if a write may have met the late copy.

        An in-place operation that has ended since then may have been under way. Returns
        when to be called again.
        """
        late_copy = self._late_copy
        if late_copy is None:
            return math.inf
        if now < late_copy.check_at:
            return late_copy.check_at
        self._late_copy = None
        value = late_copy.value
        layout, (tensors, _) = value
        if count_inplace(tensors) != late_copy.inplace_counts:
            with self._lock, self._choice.behind_trainer(layout.device):
                for channel in self._channels.values():
                    if not channel.is_zero_copy and channel.written is value:
                        version = self._take_version_number(value)
                        self._write_late(channel, value, version, now, confirmed=False)
        self._announce_version()
        return math.inf

    def _follow_live(self, now: float) -> float:
        """Copy the present values of a live stream; return when to do so again."""
        due = math.inf
        value = self._newest
        if value is None:
            return due
        layout, (tensors, _) = value
        with self._lock, self._choice.behind_trainer(layout.device) as can_queue:
            for channel in self._channels.values():
                writer = channel.writer
                if channel.is_zero_copy or writer is None or not can_queue:
                    continue
                if now >= channel.next_write_at + LIVE_PERIOD_S:
                    if not writer.holds(layout.frame(tensors)):
                        version = self._take_version_number(value)
                        self._write_late(channel, value, version, now)
                    # Large copies come less often.
                    channel.next_write_at = now + 4 * (self._run.now() - now)
                due = min(due, channel.next_write_at + LIVE_PERIOD_S)
        self._announce_version()
        return due

    def finish(self) -> None:
        """Write the last version, which viewers read after this process has ended.

        To be called when the helper thread has ended.
        """
        try:
            if self.is_behind():
                self._catch_up(math.inf)  # nothing comes after it
        except Exception as error:
            self._run.fault(error)

    # Called on any thread.

    def clear(self) -> None:
        """Release the newest value; what is published next is shown again.

        The helper thread releases all memory that shows it. Waits for nothing: the
        garbage collector may call it at any line.
        """
        self._newest = None
        self._numbered = None
        self._late_copy = None
        self._must_drop = True
        self._run.wake()

    def end(self) -> None:
        """Release everything, with the run.

        What another thread publishes from now on is dropped.
        """
        with self._lock:
            self._has_ended = True
            self._newest = None
            self._numbered = None
            self._late_copy = None
            if self._is_writing:
                return  # that call drops the writers, one of which it is just using
            self._drop_writers()
            self._channels = {}


def _no_field(device: str) -> dict[str, torch.Tensor]:
    """Return a field without values, which tells a writer of metadata their device."""
    import torch

    return {"": torch.empty(0, device=device)}
