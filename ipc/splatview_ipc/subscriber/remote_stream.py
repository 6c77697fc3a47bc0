"""One stream of a run, as a viewer sees it.

It settles on the transport that brings its frames, and on the next one when that fails.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_ipc.control import messages
from splatview_ipc.control.errors import reason_of
from splatview_ipc.control.limits import MAX_PACE
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.subscriber.selection_sender import SelectionSender
from splatview_ipc.transports import TRANSPORTS, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.messages import Ref, StreamInfo
    from splatview_ipc.subscriber.remote_run import RemoteRun

_PACE_CHANGE = 0.25
"""Part of the last pace by which another one must differ for the trainer to be told."""
_PACE_PERIOD_S = 1.0
"""Seconds until the trainer is told of a lower pace than the last one."""
_SEEN_PACE = 1.0
"""Versions a second of a viewer whose user sees them, at least."""
_QUIET_S = 0.11
"""Seconds without a publish after which the trainer is asked for its last version.

Longer than the grace in which its next publish would write that.
"""


class RemoteStream:
    """One stream of a run, as a viewer sees it."""

    def __init__(self, run: RemoteRun, info: StreamInfo) -> None:
        self.run = run
        self.info = info
        self.fault: str | None = None
        """The reason why its data cannot be read, for users; None if it can."""
        self.fallback = ""
        """The reasons why a better transport is not in use, for users.

        And the note of the one in use.
        """
        self.order: Callable[[StreamInfo], tuple[str, ...]] | None = None
        """Returns the transports that may be taken, the best first; set before `open`.

        None: as they are offered.
        """
        self.wanted_transport = ""
        """The transport that the run is to share by; "": none."""
        self._changes = 0
        """Number of changes of its version, its rate and its fault."""
        self._is_open = False
        self._reader: Reader | None = None
        self._reader_transport = ""
        self._ref: Ref | None = None
        """The reference that the reader follows."""
        self._note = ""
        """The run's note on the transport in use."""
        self._failures: dict[str, str] = {}
        """Transports that cannot be used here, with the reason."""
        self._doubted: Ref | None = None
        """The reference that could not be opened at the first try."""
        self._told_pace = MAX_PACE
        """The pace that the trainer goes by."""
        self._pace_told_at = -math.inf
        self._selection = SelectionSender(self)
        self.send_selection = self._selection.send
        """As `SelectionSender.send`."""
        self._rate = Rate()
        self._last_version = 0
        """The newest version at the last `measure`."""
        self._ask_due = math.inf
        """When to ask the trainer for its last version; inf: it was, or need not be."""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def kind(self) -> str:
        return self.info.kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def dtype(self) -> str:
        return self.info.dtype

    @property
    def device(self) -> str:
        return self.info.device

    @property
    def gpu(self) -> str:
        """UUID of the GPU that its tensors are on; "" for the CPU."""
        return self.info.gpu

    @property
    def live(self) -> bool:
        """True if its tensors change between two versions.

        Zero-copy readers redraw at intervals then.
        """
        return self.info.live

    @property
    def sharing(self) -> str:
        """The transport in use; before the first frame, the one that would be."""
        first_offered = next(iter(self.info.transports), "")
        return self._reader_transport or self.wanted_transport or first_offered

    @property
    def version(self) -> int:
        """The newest published version, read from shared memory."""
        if self.run.control is not None:
            return self.run.control.version(self.info.index)
        return self._last_version

    @property
    def rate_hz(self) -> float:
        """Publishes per second, lately."""
        return self._rate.hz if self.run.alive else 0.0

    @property
    def changes(self) -> int:
        """Number of changes of the stream or its run: facts are alike until it grows."""
        return self._changes + self.run.changes

    @property
    def opened(self) -> bool:
        """True while memory with its frames is open here."""
        return self._reader is not None

    def open(self) -> None:
        """Have the trainer share this stream's data. Idempotent.

        Only opened streams cost it anything.
        """
        self._is_open = True
        self.run.wanted_streams[self.info.index] = self
        self._choose()

    def release(self) -> None:
        """Undo `open`. Idempotent."""
        self._is_open = False
        self.wanted_transport = ""
        self._failures.clear()
        self._drop_reader()
        self.run.share(self)  # now: it may be opened again before the next poll
        self.run.wanted_streams.pop(self.info.index, None)

    def refuse(self, reason: str) -> None:
        """Change to the next transport: the frames of this one cannot be used here.

        Args:
            reason: for users.
        """
        self._failures[self._reader_transport or self.wanted_transport] = reason
        self._choose()

    def read(self, after: int = 0) -> StreamFrame | None:
        """Return the newest whole frame of a version over `after`; None for none.

        Its tensors are views of the trainer's memory: see `StreamFrame`. Works for an
        ended run as well.
        """
        return None if self._reader is None else self._reader.read(after)

    def read_next(self, last_version: int = 0) -> StreamFrame | None:
        """Return the oldest whole frame that is left of a version over `after`.

        For streams of which each frame counts; otherwise as `read`.
        """
        return None if self._reader is None else self._reader.read_next(last_version)

    def tell_pace(self, hz: float, now: float) -> None:
        """Tell the trainer how many versions a second are going to be taken at most.

        It shares tensors in place less often then. To be called whenever a version
        might be taken: small changes are not told, nor is a lower pace more than once
        in a second. Waits for nothing.

        Args:
            hz: over 0; inf: as many as come.
            now: the clock's seconds.
        """
        pace = min(hz, MAX_PACE)
        told_pace = self._told_pace
        if abs(pace - told_pace) <= _PACE_CHANGE * told_pace:
            return
        if pace < told_pace and now < self._pace_told_at + _PACE_PERIOD_S:
            return
        if self.wanted_transport and self.run.has_requested(self):
            self._told_pace = pace
            self._pace_told_at = now
            self.run.send(messages.VersionPace(self.info.index, pace))

    def request_snapshot(self) -> None:
        """Have the trainer take a full snapshot of its GPU's memory.

        For opened streams of kind memory: the frames to come hold the newest snapshot's
        name and the number of snapshots in their metadata.
        """
        self._request(messages.Snapshot(self.info.index))

    def request_photos(self, camera: int, side: int = 0) -> None:
        """Have the trainer show photographs in the frames to come (`messages.Photos`).

        For opened streams of kind cameras that are a part of another. A request without
        an effect may be repeated.
        """
        self._request(messages.Photos(self.info.index, camera, side))

    def request_picture(self, draw: messages.Draw) -> None:
        """Have a picture be drawn, which comes in a later frame (`messages.Draw`).

        For opened streams of kind picture. `draw.index` is this stream's.
        """
        self._request(draw)

    def set_control(
        self, control: str, value: messages.MetaValue = 0, clicks: int = 0
    ) -> None:
        """Set a control of the script (`messages.SetControl`).

        For opened streams of kind controls.
        """
        self._request(messages.SetControl(self.info.index, control, value, clicks))

    def _request(
        self,
        message: messages.Snapshot
        | messages.Photos
        | messages.Draw
        | messages.SetControl,
    ) -> None:
        if self._is_open and self.run.alive:
            self.run.share(self)
            self.run.send(message)

    def send_rest(self) -> None:
        """Send what is left of a selection, as far as it can go now."""
        if self._is_open and self.run.alive and self.run.has_requested(self):
            self._selection.advance()

    @property
    def torn(self) -> int:
        """Number of frames discarded because the writer overwrote them."""
        return self._reader.torn if self._reader is not None else 0

    # For RemoteRun.

    def request(self, transport: str) -> None:
        """Request the offer of a transport. The trainer forgets the pace with it."""
        self._told_pace = MAX_PACE
        self._selection.restart()
        self.run.send(messages.Open(self.info.index, transport))  # type: ignore[arg-type]

    @property
    def known_tokens(self) -> frozenset[str]:
        """Tokens whose descriptors need not be fetched again."""
        return self._reader.known_tokens if self._reader is not None else frozenset()

    def info_changed(self, info: StreamInfo) -> None:
        """Take in the run's new description of the stream."""
        if self.info.gpu != info.gpu:
            self._failures.clear()
        self.info = info
        self._choose()

    def offered(self, offer: messages.Offer, fds: Mapping[str, Sequence[int]]) -> None:
        """Open what was announced; what was open before stays readable until then.

        The descriptors stay the caller's.
        """
        if offer.transport != self.wanted_transport or not self._is_open:
            return
        if offer.note != self._note:
            self._note = offer.note
            self._choose()
        if offer.ref == self._ref:
            return
        try:
            self._follow(offer, fds)
        except Exception as error:
            if self._doubted == offer.ref:
                self._failures[offer.transport] = reason_of(error)
                self._choose()
            else:  # perhaps it was replaced just now
                self._doubted = offer.ref
                self.request(offer.transport)

    def _follow(self, offer: messages.Offer, fds: Mapping[str, Sequence[int]]) -> None:
        """Have the reader follow an offer, or make another reader for it."""
        reader = self._reader
        is_same = self._reader_transport == offer.transport
        if reader is None or not is_same or not reader.follow(offer.ref, fds):
            new_reader = TRANSPORTS[offer.transport].reader(offer.ref, fds)
            new_reader.alive = self.run.watch.alive
            self._drop_reader()
            self._reader = new_reader
            self._reader_transport = offer.transport
        self._ref = offer.ref
        self.fault = None
        self._doubted = None

    def measure(self, now: float) -> bool:
        """Take in the version at `now` (seconds); return whether it is a new one."""
        last_version = self._last_version
        last_rate = self._rate.hz
        self._last_version = self.version
        self._rate.look(now, self._last_version)
        has_new_version = self._last_version != last_version
        if has_new_version:
            self._ask_due = now + _QUIET_S
        elif now >= self._ask_due:
            self._ask_due = math.inf
            self._ask_for_last_version()
        self._changes += has_new_version or self._rate.hz != last_rate
        return has_new_version

    def _ask_for_last_version(self) -> None:
        """Wake the trainer's helper if the last version was left to it.

        While the trainer publishes, its helper looks seldom whether it has stopped.
        """
        reader = self._reader
        if reader is None or self._told_pace < _SEEN_PACE:
            return
        if self.run.has_requested(self) and not reader.holds(self._last_version):
            self.run.send(messages.VersionPace(self.info.index, self._told_pace))

    def _choose(self) -> None:
        """Choose the best transport that the run offers and this process can take."""
        if not self._is_open or not self.run.alive:
            return
        self._changes += 1
        info = self.info
        names = info.transports if self.order is None else self.order(info)
        transport = ""
        fallback = [info.reasons]
        for name in names:
            problem = self._failures.get(name) or self.run.unfit(name, info.gpu)
            if not problem:
                transport = name
                break
            fallback.append(f"{name}: {problem}")
        if transport != self.wanted_transport:
            self.wanted_transport = transport
            self._note = ""
        if self._note:
            fallback.append(f"{transport}: {self._note}")
        self.fallback = "; ".join(filter(None, fallback))
        if not transport:
            self.fault = self.fallback or None
            return
        # The run still offers a transport whose memory is short: nothing comes until
        # there is some.
        reason = dict(info.why).get(transport)  # type: ignore[call-overload]
        self.fault = None if reason is None else f"{transport}: {reason}"

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None
        self._reader_transport = ""
        self._ref = None
        self._doubted = None
