"""The transports by which viewers read one stream, and the writing of its versions.

`StreamChannels` holds what the trainer's thread and the helper thread share: the newest
value, and a `Channel` for each transport in use. Both threads write by `_write`, under
a lock. Who writes when is the matter of `stream_turns` (the helper thread) and `stream`
(the trainer's thread), which build on this class.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, NamedTuple, Protocol

from splatview_ipc.control.errors import SharingError, reason_of
from splatview_ipc.control.limits import MAX_META_TEXT
from splatview_ipc.control.messages import StreamInfo
from splatview_ipc.publisher.channel import Channel, LateCopy, SharedFields
from splatview_ipc.publisher.transport_choice import Options, TransportChoice
from splatview_ipc.shm.control_block import COPIES, ControlBlock
from splatview_ipc.transports import ZERO_COPY

if TYPE_CHECKING:
    import torch

    from splatview_ipc.control.messages import Ref
    from splatview_ipc.kinds import ValueLayout
    from splatview_ipc.publisher.channel import Tensors, Value

RETRY_S = 1.0
"""Seconds between two attempts to allocate memory that was short."""
BURST_S = 0.05
"""Seconds without a frame that may be made up for by frames in quick succession."""


class StreamHost(Protocol):
    """The services of a run that its streams use."""

    control: ControlBlock

    def now(self) -> float:
        """Return the clock's seconds."""
        ...

    def wake(self) -> None:
        """Have the helper thread call `turn` soon, and announce changes to viewers.

        May be called from any thread.
        """
        ...

    def fault(self, error: BaseException) -> None:
        """Count a fault of the surroundings and report it."""
        ...


class ValueForm(NamedTuple):
    """The form of a stream's values, as viewers are told."""

    shape: tuple[int, ...]
    dtype: str
    device: str


class OverlaidStream(NamedTuple):
    """The stream that another one is drawn over, or belongs to (`StreamInfo.over`)."""

    name: str = ""
    """Its name; "" for none."""
    run: str = ""
    """Id of its run; "" for the publisher's own if that has the stream, otherwise any."""


class StreamChannels:
    """A stream's newest value, and the transports in use that viewers read it by."""

    def __init__(self, index: int, name: str, kind: str, run: StreamHost) -> None:
        self.index = index
        self.name = name
        self.kind = kind
        self._version_numbers = itertools.count(1)
        """Versions' numbers; both threads take them."""
        self._published_version = 0
        """The number that the last publish took. Set by the trainer's thread alone."""
        self._numbered: Value | None = None
        """The value that has this number."""
        self._helper_version = 0
        """The last number that the helper thread took for the value that was newest."""
        self.over = OverlaidStream()
        """The stream below an overlay."""
        self.shard: tuple[tuple[int, int] | None, str] = None, ""
        """The part of a scene that it is, and its group; see `StreamInfo.shard`."""
        self.resize_count = 0
        """How often the first side of the values' shape has changed."""
        self.wants_selection = False
        """True if the script reads which Gaussians a viewer selects."""
        self.layout: ValueLayout | None = None
        """The layout of the newest value."""
        self._form: ValueForm | None = None
        """The form of the newest value; None before the first one."""
        self._run = run
        self._now = run.now
        self._control = run.control
        self._words = run.control.words
        self._version_word = ControlBlock.version_word(index)
        self._choice = TransportChoice(kind)
        self._newest: Value | None = None
        self._published_at = 0.0
        self._awaited_version = 0
        """A version that a reader waits for: nothing delays it, nor a later one."""
        self._next_write_at = 0.0
        """When one of the transports in use takes the next version from `publish`.

        Versions that come before that are left to the helper thread.
        """
        self.next_look = math.inf
        """When the helper thread looks whether the trainer still publishes; inf: never."""
        self._late_copy: LateCopy | None = None
        self._channels: dict[str, Channel] = {}
        """By transport. Replaced, never changed in place, since two threads read it."""
        self._lock = threading.RLock()
        self._is_publishing = False
        self._is_writing = False
        """True while a publish writes, under the lock.

        Only a signal's handler, in the same thread, can have the lock too then.
        """
        self._helper_knows = False
        """True when the helper thread knows that a version is left for it."""
        self._must_drop = False
        """True after Ctrl-C amid a write, and when the value was released.

        No writer is used any more until the helper thread has closed them all.
        """
        self._has_ended = False
        """True once the run has ended: nothing reaches a viewer any more."""

    @property
    def live(self) -> bool:
        """True if the caller changes the tensors in place between two publishes."""
        return self._choice.options.live

    @property
    def version(self) -> int:
        """Number of the newest version."""
        return max(self._published_version, self._helper_version)

    @property
    def newest(self) -> Value | None:
        """The newest value and its layout; None before there is one.

        The tensors are the trainer's own, as they are now. Any thread may call this.
        """
        return self._newest

    # The form of the values. `describe` is called on the trainer's thread.

    def describe(
        self, layout: ValueLayout, copy: bool | None = None, live: bool = False
    ) -> None:
        """Set the layout of the values to come, and the caller's options for them.

        Must be called before the first `publish`, and before each value that looks
        different from the last one. Waits for nothing.
        """
        self.layout = layout
        choice = self._choice
        options = Options(copy, live)
        form = ValueForm(layout.shape, layout.dtype, layout.device)
        if form == self._form and options == choice.options:
            return
        error: SharingError | None = None
        if self._form is None or layout.device != self._form.device:
            # Writers for another device stay until their viewers have chosen another
            # transport, or the helper thread has made others: they refuse what is not
            # on their device.
            error = choice.change_device(layout.device)
        choice.options = options
        if self._form is not None and form.shape[:1] != self._form.shape[:1]:
            self.resize_count += 1
        self._form = form
        self._run.wake()
        if error is not None:
            self._run.fault(error)

    @property
    def info(self) -> StreamInfo | None:
        """The announcement for viewers; None before the first value."""
        form = self._form
        if form is None:
            return None
        gpu = self._choice.gpu
        shard, group = self.shard
        return StreamInfo(
            index=self.index,
            name=self.name,
            kind=self.kind,  # type: ignore[arg-type]
            shape=form.shape,
            dtype=form.dtype,  # type: ignore[arg-type]
            device=form.device,
            transports=self._choice.offered(),  # type: ignore[arg-type]
            why=tuple(
                (name, reason[:MAX_META_TEXT])  # type: ignore[misc]
                for name, reason in self._choice.failures.items()
            ),
            gpu=gpu.uuid if gpu is not None else "",
            live=self.live,
            over=self.over.name,
            over_run=self.over.run,
            shard=shard,
            group=group,
            wants_selection=self.wants_selection,
        )

    @property
    def count(self) -> int:
        """The first side of the newest value's shape; 0 without one."""
        form = self._form
        if form is None or not form.shape:
            return 0
        return form.shape[0]

    # Which viewers lack what. Called on any thread.

    @property
    def readers(self) -> int:
        """Number of viewers that opened this stream."""
        return sum(channel.readers for channel in self._channels.values())

    def is_behind(self) -> bool:
        """Return whether a viewer lacks the newest value."""
        return bool(self._channels_behind())

    def _lacks_awaited(self) -> bool:
        """Return whether a viewer lacks the version that a reader waits for."""
        return any(map(self._is_awaited, self._channels_behind()))

    def _channels_behind(self) -> list[Channel]:
        """Return the transports in use that have not been given the newest value.

        Nor those that have it under a lower number than the one that a reader waits for.
        """
        value = self._newest
        channels = self._channels.values()
        late_channels = [c for c in channels if self._lacks(c, value)]
        if value is None or not late_channels:
            return []
        suitable = self._choice.suitable()
        failures = self._choice.failures
        return [
            channel
            for channel in late_channels
            if channel.transport in suitable and channel.transport not in failures
        ]

    def _lacks(self, channel: Channel, value: Value | None) -> bool:
        """Return whether a transport is to be given a value, or its awaited number."""
        return channel.written is not value or self._is_awaited(channel)

    def _is_awaited(self, channel: Channel) -> bool:
        """Return whether a reader waits for what a transport has not been given yet."""
        return channel.written_version < self._awaited_version

    # Writing. Called on both threads, under the lock.

    def _write(
        self,
        channel: Channel,
        value: Value,
        version: int,
        now: float,
        confirmed: bool = True,
    ) -> bool:
        """Write a value to a transport, under the number of a version.

        Returns whether the transport needs nothing more for this version; False means
        that the helper thread has to make a writer, or to try again.
        """
        writer = channel.writer
        if writer is None or self._must_drop:
            # Viewers of a transport that failed are choosing another one.
            return channel.transport in self._choice.failures
        if version <= channel.written_version:
            # The other thread has written this value, or a newer one, under a number
            # that it took later.
            return True
        layout, (tensors, meta) = value
        if channel.is_zero_copy:
            fields = self._shared_fields(channel, layout, tensors)
        else:
            fields = layout.frame(tensors)
        ref = writer.ref
        try:
            if not writer.write(layout.kind, fields, meta, version, confirmed):
                if not writer.fits(fields):
                    channel.is_outgrown = True
                    self._run.wake()  # also where it knows of a version: it may sleep
                return False
        except Exception as error:
            self._fail(channel, layout, error)
            return True
        if writer.ref is not ref:
            self._run.wake()  # to announce it
        channel.written = value
        channel.written_version = version
        if channel.next_write_at < now - BURST_S:
            channel.next_write_at = now - BURST_S
        elif channel.next_write_at > now:  # it was awaited: later ones wait no longer
            channel.next_write_at = now
        channel.next_write_at += channel.period
        self._control.words[COPIES] += 1
        return True

    def _shared_fields(
        self, channel: Channel, layout: ValueLayout, tensors: Tensors
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of a frame by name, to be shared where they are stored.

        They are the last ones as long as the same tensors are at the same addresses.
        This saves a dozen calls of torch.
        """
        addresses = [tensor.data_ptr() for tensor in tensors]
        shared = channel.shared
        if (
            shared is not None
            and shared.layout is layout
            and shared.tensors is tensors
            and shared.addresses == addresses
        ):
            self._choice.move_count = 0
            return shared.fields
        self._count_move(addresses)
        fields = layout.frame(tensors)
        channel.shared = SharedFields(layout, tensors, addresses, fields)
        return fields

    def _follow_moves(self, channel: Channel, value: Value) -> None:
        """Look at a version that a transport is not given, if the last one had moved.

        Of tensors that move now and then every shared version may be the first at its
        addresses: the publishes between tell that they stay.
        """
        if channel.is_zero_copy and self._choice.move_count:
            _, (tensors, _) = value
            self._count_move([tensor.data_ptr() for tensor in tensors])

    def _count_move(self, addresses: list[int]) -> None:
        """Compare the addresses of a version with those of the one before."""
        if self._choice.count_move(addresses):
            self._run.wake()  # viewers choose a transport that copies

    def _fail(self, channel: Channel, layout: ValueLayout, cause: Exception) -> None:
        """Stop offering a transport, so that its viewers take the next best one.

        The last transport that is offered is tried again later instead.
        """
        channel.drop_writer()
        self._run.wake()
        form = self._form
        if form is not None and form.device != layout.device:
            return  # values are on another device by now
        choice = self._choice
        transport = channel.transport
        reason = reason_of(cause)
        is_new = transport not in choice.failures
        if len(choice.offered()) < 2:
            channel.retry_at = self._run.now() + RETRY_S
        choice.add_failure(transport, reason)
        next_best = choice.offered()[0]
        message = ""
        if channel.retry_at:
            message = f"stream {self.name!r} is not shown: {reason}"
        elif next_best not in ZERO_COPY:
            message = (
                f"stream {self.name!r} goes by {next_best} instead of {transport}: "
                f"{reason}"
            )
        if is_new and message:
            self._run.fault(SharingError(message))

    def _drop_writers(self) -> None:
        for channel in self._channels.values():
            channel.drop_writer()

    # Viewers that come and go. Called on the helper thread.

    def open(self, transport: str) -> None:
        """Add a viewer that reads frames by this transport."""
        with self._lock:
            if transport not in self._channels:
                self._channels = {**self._channels, transport: Channel(transport)}
                self._next_write_at = 0.0
            self._channels[transport].readers += 1

    def release(self, transport: str) -> None:
        """Remove a viewer. The memory is released with the transport's last one."""
        with self._lock:
            channel = self._channels.get(transport)
            if channel is None:  # the run has ended
                return
            channel.readers -= 1
            if channel.readers:
                return
            channels = self._channels
            self._channels = {n: c for n, c in channels.items() if n != transport}
            if not self._channels:
                self._choice.move_count = 0
            writer = channel.take_writer()
        # Outside the lock: releasing a gigabyte takes long.
        if writer is not None:
            writer.close()

    def follow_pace(self, transport: str, hz: float) -> None:
        """Write to a transport as often as the fastest of its viewers needs it.

        Args:
            transport: the transport.
            hz: versions that this viewer takes a second.
        """
        with self._lock:
            channel = self._channels.get(transport)
            if channel is not None:
                channel.follow_pace(hz)
                self._next_write_at = 0.0

    def offer(self, transport: str) -> tuple[Ref, str] | None:
        """Return where the frames are, and a note for users; None if not known yet."""
        channel = self._channels.get(transport)
        writer = channel.writer if channel is not None else None
        if writer is None:
            return None
        return writer.ref, writer.note[:MAX_META_TEXT]
