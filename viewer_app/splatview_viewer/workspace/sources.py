"""Sources of the entries' values, of which a stream of a run is one."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda.driver import find_device, torch_with_cuda
from splatview_ipc.transports import TRANSPORTS, ZERO_COPY
from splatview_viewer.kinds import about
from splatview_viewer.workspace.shards import notes_of, runs_of, streams_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import moderngl

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.settings import Entry, Wish
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.recording.player import Player
    from splatview_viewer.recording.recorder import Recorder, Tape

LIVE_PERIOD = 1 / 30
"""Seconds between looks at tensors that change in place all the time."""


def make_subscriber(
    ctx: moderngl.Context, run: str | None, client: str = "viewer"
) -> Subscriber:
    """Return a subscriber to what can be shown with an OpenGL context.

    That is memory of a GPU that CUDA sees or OpenGL draws on. Neither is asked to do
    anything: no CUDA context is made.
    """
    from splatview_ipc.gl.glapi import gl_device_uuid
    from splatview_ipc.subscriber.subscriber import Subscriber, can_take

    gl_gpu = gl_device_uuid(ctx)

    def is_takable(transport: str, gpu: str) -> bool:
        return can_take(transport, gpu, gl_gpu)

    return Subscriber(run=run, client=client, transports=is_takable)


class ValueSource:
    """The source of an entry's values. By default it brings none."""

    path: str = ""
    """The way in which the data is shared."""
    notes: Sequence[str] = ()
    """Why it is not shared in a better way, and where it is."""
    time_ns: int = 0
    """Time of publication of the value handed out last, ns since the epoch; 0: none."""
    step: float | None = None
    """The step of the value handed out last, as its publisher says."""
    stream: Any = None
    """The stream of a run; None for a source that has none, such as a file."""
    streams: Sequence[RemoteStream] = ()
    """The streams that runs are to share for it now."""
    trouble: str = ""
    """The publisher's report of what is wrong with the value handed out last."""
    uses: Sequence[str] = ()
    """Keys of the entries that it shows in one picture."""
    identity: str = ""
    """As of `Host`: what is remembered of it belongs to this."""
    rests: bool = False
    """`refresh` would change nothing: in each turn, a thousand files are asked for this
    alone."""
    at_work: bool = False
    """`refresh` goes on by the clock, such as to play: it must not wait for the pointer
    to rest."""

    def refresh(self, entry: Entry, now: float) -> None:
        """Bring an entry of the list up to date, at least ten times a second."""

    def follow(self, stream: Any) -> None:
        """Continue with another run's stream."""

    def set_paused(self, paused: Wish) -> None:
        """Pause its run, have it continue, or have a paused run take a step."""

    def open(self) -> None:
        """Begin to bring values: the entry is visible from now on."""

    def release(self) -> None:
        """Bring no more values: the entry is not visible any more."""

    def has_new_value(self) -> bool:
        """Return whether `feed` would bring something new. Cheap."""
        return False

    def tell_pace(self, hz: float, now: float) -> None:
        """Tell the publisher how many values a second are going to be taken at most.

        As `RemoteStream.tell_pace`.
        """

    def resend(self) -> None:
        """Count the value handed out last as new: it was overwritten."""

    def feed(self, view: ShownView) -> bool:
        """Give the newest complete value to a view; return whether it was taken."""
        return False

    def close(self) -> None:
        """Release everything. Idempotent."""


class StreamSource(ValueSource):
    """A stream of a run.

    After a restart of the trainer it is the stream of the same name of the next run.
    What is recorded of it can be handed out instead of what comes (`Tape.player`).
    """

    def __init__(self, stream: Any, recorder: Recorder | None = None) -> None:
        """Follow a stream: a RemoteStream, or a ShardedStream.

        Args:
            recorder: records its versions, if it is of a kind that is recorded.
        """
        self.stream = stream
        self.tape: Tape | None = None
        """The recording of it."""
        self._recorder: Recorder | None = None
        if about(stream.kind).recorded:
            self._recorder = recorder
        self._is_seen = False
        self._confirmed = True
        self._last_version = 0
        """The version that was handed out last; 0: none, or something recorded."""
        self._next_live_look = 0.0
        self._offered: StreamFrame | None = None
        """The last frame that was not taken."""
        self._refreshed: object = None
        """What the entry was brought up to date with last; None: nothing."""

    def follow(self, stream: Any) -> None:
        if self.tape is not None:
            self.tape.start_next_run()
        self.stream = stream
        self._refreshed = None
        self._offered = None
        self._last_version = 0
        self.time_ns = 0
        self.trouble = ""
        self.step = None

    @property
    def rests(self) -> bool:  # type: ignore[override]
        if self.tape is not None or (self._recorder is not None and self.streams):
            return False
        return self._refreshed == (self.stream.changes, self.time_ns)

    def refresh(self, entry: Entry, now: float) -> None:
        stream = self.stream
        self._refreshed = stream.changes, self.time_ns
        runs = [run for run in runs_of(stream) if run.alive]
        entry.alive = stream.run.alive
        entry.version = stream.version
        entry.rate_hz = 0.0
        entry.paused = None
        if entry.alive:
            entry.rate_hz = stream.rate_hz
            entry.paused = any(run.paused for run in runs)
        entry.kind = stream.kind
        entry.fault_of_source = stream.fault or stream.run.refused or ""
        entry.waits = max((run.waits for run in runs), default=0)
        entry.started_at = stream.run.folder.description.started
        entry.ended_at = 0.0 if entry.alive else stream.run.ended_at
        entry.step = self.step
        entry.count = _count_of(stream)
        if self._recorder is not None and self.tape is None and self.streams:
            self.tape = self._recorder.start_tape(stream.run.name, stream.name)
        if self.tape is not None:
            self.tape.tick(stream, bool(self.streams), now)

    @property
    def at_work(self) -> bool:  # type: ignore[override]
        return self.tape is not None and self.tape.at_work

    @property
    def streams(self) -> Sequence[RemoteStream]:  # type: ignore[override]
        """The processes' streams while the entry is visible, or written to disk."""
        recorder = self._recorder
        is_on_disk = recorder is not None and recorder.options.folder is not None
        if self._is_seen or is_on_disk:
            return streams_of(self.stream)
        return ()

    @property
    def _player(self) -> Player | None:
        """The player that brings the values; None: the run does."""
        if self.tape is None or self.tape.player.position is None:
            return None
        return self.tape.player

    def open(self) -> None:
        self._is_seen = True

    def release(self) -> None:
        self._is_seen = False
        if self.tape is not None and not self.streams:
            self.tape.finish()

    def has_new_value(self) -> bool:
        player = self._player
        if player is not None:
            return player.has_new_value()
        stream = self.stream
        if stream.version > self._last_version:
            return True
        # Tensors in place change without a version; a copy that changes is a new
        # version.
        changes_in_place = stream.live and stream.sharing in ZERO_COPY
        if not changes_in_place or not stream.run.alive or self._last_version == 0:
            return False
        return time.monotonic() >= self._next_live_look

    def tell_pace(self, hz: float, now: float) -> None:
        recorder = self._recorder
        if recorder is not None and recorder.options.every is not None:
            # The steps to record are looked for among all versions.
            hz = math.inf
        self.stream.tell_pace(hz, now)

    def resend(self) -> None:
        self._last_version = 0
        player = self._player
        if player is not None:
            player.resend()

    def feed(self, view: ShownView) -> bool:
        if self.tape is not None:
            view.content.player = self.tape.player
        player = self._player
        if player is not None:
            # What the run publishes is new once the player is done.
            self._last_version = 0
            return player.feed(view)
        stream = self.stream
        newer_than = self._last_version
        if stream.live and stream.version == newer_than:
            newer_than = max(newer_than - 1, 0)
        frame = self._offered
        if frame is None or view.wants.copied_frame is not frame:
            frame = stream.read(after=newer_than)
        self._offered = None
        if frame is None:
            if not stream.run.alive:
                self._skip_lost_version(newer_than)
            return False
        with frame:
            return self._hand_out(frame, view)

    def _skip_lost_version(self, newer_than: int) -> None:
        """Wait no more for a version that an ended run announced and did not complete."""
        self._last_version = self.stream.version
        if newer_than == 0 and self.tape is not None and len(self.tape.recording):
            self.tape.player.end()

    def _hand_out(self, frame: StreamFrame, view: ShownView) -> bool:
        """Give a frame to a view; return whether it was taken."""
        try:
            is_taken = view.update(frame)
        except SharingError as e:
            if not frame.on_gpu:
                raise
            # The same data may be shown when it comes by another transport.
            self.stream.refuse(str(e))
            return False
        except Exception:
            # The same frame would fail once more; the next one may not.
            self._last_version = frame.version
            raise
        if not is_taken:
            self._offered = frame
            return False
        self._next_live_look = time.monotonic() + LIVE_PERIOD
        self._last_version = frame.version
        self.time_ns = frame.time_ns
        if self.tape is not None:
            self.tape.recording.live_time_ns = frame.time_ns
        self._confirmed = frame.confirmed
        self.step = _step_of(frame.meta)
        trouble = frame.meta.get("trouble")
        if isinstance(trouble, str):
            self.trouble = trouble
        else:
            self.trouble = ""
        return True

    def set_paused(self, paused: Wish) -> None:
        # Processes that train together would wait for the one that is paused.
        for run in runs_of(self.stream):
            if paused == "step":
                run.step()
            else:
                run.set_paused(paused)

    @property
    def path(self) -> str:  # type: ignore[override]
        transport = TRANSPORTS.get(self.stream.sharing)
        if transport is None:
            return self.stream.sharing
        return transport.label

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        stream = self.stream
        notes = notes_of(stream)
        if stream.fallback:
            notes.append(f"sharing: {stream.fallback}")
        if not self._confirmed:
            notes.append(
                "copied while nothing was published: the script may have been writing "
                "into it"
            )
        if stream.gpu:
            notes.append(_device_note(stream))
        return notes

    def close(self) -> None:
        self._is_seen = False
        if self.tape is not None:
            self.tape.close()
        self.tape = None
        self._recorder = None


def _count_of(stream: Any) -> int | None:
    """Return the number of a stream's Gaussians or cameras; None for others."""
    shape = stream.shape
    if about(stream.kind).holds_many and shape:
        return shape[0]
    return None


def _step_of(metadata: Mapping[str, Any]) -> float | None:
    """Return the step that the metadata of a frame state."""
    step = metadata.get("step")
    if isinstance(step, bool) or not isinstance(step, (int, float)):
        return None
    if math.isfinite(step):
        return step
    return None


def _device_note(stream: Any) -> str:
    """Return which GPU a stream's tensors are on, by name if CUDA is in use already."""
    note = f"tensors on {stream.device}"
    torch = torch_with_cuda()
    if torch is None:
        index = None
    else:
        index = find_device(stream.gpu)
    if torch is None or index is None:
        return note
    return f"{note}, {torch.cuda.get_device_name(index)}"
