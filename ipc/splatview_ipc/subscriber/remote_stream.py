"""One stream of a run, as a viewer sees it: which way its frames come, and what to do when that way fails."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING

from splatview_ipc.control import messages
from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.subscriber.rate import Rate
from splatview_ipc.transports import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.control.messages import Ref, StreamInfo
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.transports.base import FrameReader

_PATIENCE = 3.0
"""Seconds within which memory that was announced must be open."""
_DOUBT = 0.3
"""Seconds after which memory that could not be opened is tried once more."""
_UNANSWERED = 0.05
"""Seconds for which a version that is asked for is left to the next publish."""


class RemoteStream:
    """One stream of a run, as a viewer sees it."""

    def __init__(self, run: RemoteRun, info: StreamInfo):
        self.run = run
        self.info = info
        self.rate_hz = 0.0
        """Publishes per second, lately."""
        self.fault: str | None = None
        """Why its data cannot be read, for people."""
        self.fallback = ""
        """Why a better way is not in use, and what is worse about the one that is than usually, for people."""
        self.order: Callable[[StreamInfo], tuple[str, ...]] | None = None
        """Which of the ways that are offered may be taken, the best first; None: as they are offered. To be set before
        `open`."""
        self.holds = 1
        """How many frames are to be kept from being overwritten until they are closed, at most MAX_HELD. To be set
        before `open`."""
        self.writable = False
        """Whether tensors in host memory may be written to, in private copies of the pages written. To be set before
        `open`."""
        self._opened = False
        self._way = ""
        """The way that was asked for."""
        self._reader: FrameReader | None = None
        self._reader_way = ""
        self._ref: Ref | None = None
        """Where the frames lie now, as the run said."""
        self._followed: Ref | None = None
        self._doubted: Ref | None = None
        """What could not be opened at the first try."""
        self._doubted_until = 0.0
        self._note = ""
        """What the run said of the way in use."""
        self._patience = 0.0
        self._taken = 0
        self._read = 0
        """The newest version that was read."""
        self._unanswered = math.inf
        """When to tell the helper thread that a version is asked for."""
        self._failed: dict[str, str] = {}
        self._last_version = 0
        self._rate = Rate()

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
        """UUID of the GPU that its tensors lie on, 32 hexadecimal digits; "" for the CPU."""
        return self.info.gpu

    @property
    def live(self) -> bool:
        """Whether its tensors change between two versions: whoever reads them in place redraws now and then."""
        return self.info.live

    @property
    def sharing(self) -> str:
        """Which of `splatview_ipc.transports.WAYS` brings its frames; before there are any, which one would."""
        return self._reader_way or self._way or next(iter(self.info.ways), "")

    @property
    def version(self) -> int:
        """The newest published version, read from shared memory."""
        board = self.run._board
        if board is not None:
            self._last_version = board.version(self.info.index)
        return self._last_version

    @property
    def opened(self) -> bool:
        """Whether memory for its frames is open here."""
        return self._reader is not None

    def open(self) -> None:
        """Ask the trainer to share this stream's data. Only opened streams cost it anything. Idempotent."""
        if not self._opened:
            self._opened = True
            self._choose()

    def release(self) -> None:
        """The opposite of `open`. Idempotent."""
        if self._opened:
            self._opened = False
            if self._way:
                self.run._send(messages.Release(self.info.index))
            self._way = ""
            self._ref = None
            self._failed.clear()
            self._drop_reader()

    def refuse(self, reason: str) -> None:
        """What the way in use brings cannot be used here after all (`reason` is for people): take the next."""
        self._fail(self._reader_way or self._way, reason)

    def read(self, after: int = 0) -> Frame | None:
        """The newest whole frame with a version over `after`; None when there is none yet.

        Its tensors are views of the trainer's memory: see `Frame`. Works for an ended run as well.
        """
        self._follow()
        reader = self._reader
        if reader is None or (reader.outdated and self.run.alive):
            return None
        frame = reader.read(after)
        if frame is not None:
            self._read = frame.version
        return frame

    def ask(self) -> None:
        """Say that a newer version would be taken now. Where tensors are shared in place, the trainer marks only those
        versions that somebody asks for: whoever calls this while there is nothing to read gets the next at once."""
        if self._reader is not None:
            self._reader.ask()

    def request_snapshot(self) -> None:
        """Have the trainer take a full snapshot of its GPU's memory. For opened streams of kind memory: the frames to
        come say in their metadata what the newest snapshot is called, and how many there were."""
        if self._opened and self.run.alive:
            self.run._send(messages.Snapshot(self.info.index))

    def request_photos(self, camera: int, side: int = 0) -> None:
        """Have the trainer show photographs in the frames to come, soon (`messages.Photos`). For opened streams of kind
        cameras that are a part of another; what is not seen in time may be asked for again."""
        if self._opened and self.run.alive:
            self.run._send(messages.Photos(self.info.index, camera, side))

    @property
    def torn(self) -> int:
        """Frames given up because the writer came back to them."""
        return self._reader.torn if self._reader is not None else 0

    def _choose(self) -> None:
        """Ask for the best way that the run offers and this process can take."""
        if not self._opened or not self.run.alive:
            return
        ways = self.info.ways if self.order is None else self.order(self.info)
        unfit = {w: reason for w in ways if w not in self._failed and (reason := self.run._unfit(w, self.info.gpu))}
        way = next((w for w in ways if w not in self._failed and w not in unfit), "")
        better = ways[: ways.index(way)] if way else ways
        reasons = [f"{w}: {(unfit | self._failed)[w]}" for w in better]
        self._note = self._note if way == self._way else ""
        note = self._note and f"{way}: {self._note}"
        self.fallback = "; ".join(filter(None, [self.info.why, *reasons, note]))
        self.fault = None if way else self.fallback or None
        if way and way != self._way:
            self._way, self._ref, self._followed = way, None, None
            self.run._send(messages.Open(self.info.index, way))  # type: ignore[arg-type]

    def _fail(self, way: str, reason: str) -> None:
        self._failed[way] = reason
        if way == self._way:
            self._way, self._ref, self._note = "", None, ""
        self._choose()

    def _offered(self, offer: messages.Offer) -> None:
        if offer.way == self._way:
            if offer.ref != self._ref:
                self._ref = offer.ref
                self._patience = time.monotonic() + _PATIENCE
            if offer.note != self._note:
                self._note = offer.note
                self._choose()

    def _follow(self) -> None:
        """Open what was announced; what was open before stays readable until then."""
        ref, index = self._ref, self.info.index
        if ref is None or ref is self._followed or self.run._board is None or not self.run.alive:
            return
        if ref is self._doubted and time.monotonic() < self._doubted_until:
            return
        try:
            if self._reader is None or self._reader_way != self._way or not self._reader.follow(ref):
                reader = WAYS[self._way].reader(ref, self.run._source, partial(self.run._lease, index),
                                                self.writable)
                if self.holds > 1:
                    reader.hold_several(self.holds)
                if self._reader is not None and self._reader_way == self._way:
                    self._reader.settle()  # the trainer has replaced its writer
                self._drop_reader()
                self._reader, self._reader_way = reader, self._way
            self._followed, self.fault = ref, None
        except NotYet:
            if time.monotonic() > self._patience:
                self._fail(self._way, f"its memory did not come within {_PATIENCE:.0f} s")
        except SharingError as e:
            if ref is self._doubted:
                self._fail(self._way, str(e))
            else:  # perhaps it was replaced just now, and where it lies instead is on its way
                self._doubted, self._doubted_until = ref, time.monotonic() + _DOUBT

    def _look(self) -> None:
        """Go on with what could not be finished at once. Called at each poll."""
        self._follow()
        taken = self._reader.taken if self._reader is not None else 0
        if taken != self._taken and self.run.alive:
            self._taken = taken
            if taken:
                self.run._send(messages.Took(self.info.index, taken))
        self._ask_again(time.monotonic())

    def _ask_again(self, now: float) -> None:
        """What was published before we asked may be the last for long: the helper thread marks it then."""
        if self._reader is None or not self._reader.asks or self.version <= self._read:
            self._unanswered = math.inf
        elif self._unanswered == math.inf:
            self._unanswered = now + _UNANSWERED
        elif now >= self._unanswered:
            self._unanswered = now + 2 * _UNANSWERED
            self.run._send(messages.Want(self.info.index))

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._reader_way, self._followed, self._taken = None, "", None, 0
        self._read, self._unanswered = 0, math.inf

    def _measure(self) -> None:
        self._rate.look(time.monotonic(), self.version)  # at the time of this count, not of the poll that began before
        self.rate_hz = self._rate.hz
