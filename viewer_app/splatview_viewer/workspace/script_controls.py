"""The controls of the scripts whose streams are shown: read, and set by users.

A run has one stream of them, which is no entry of the list. It is shared while a panel is
open beside a stream of its run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.kinds import about
from splatview_viewer.kinds.controls import LINK
from splatview_viewer.kinds.controls.content import ScriptControls
from splatview_viewer.workspace.links import Feed, open_linked
from splatview_viewer.workspace.shards import runs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.kinds.controls import Value
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.workspace.catalogue import Catalogue, ViewportLike
    from splatview_viewer.workspace.slot import Slot

_ANSWER_S = 1.0
"""Seconds for which a change of the controls counts as the answer to a user here."""
_UNASKED_PERIOD_S = 0.1
"""Seconds between two versions that are shown while no user here sets anything."""


class RunControls:
    """The controls of one run, or of the processes that train together."""

    def __init__(self, streams: Sequence[RemoteStream]) -> None:
        """Read the first of the streams; what users set goes to all of them."""
        self.streams = streams
        self.content = ScriptControls()
        self.content.send = self._send
        self._feed = Feed(LINK, self, streams[0])
        self._next_read = 0.0
        """When a version that no user here has asked for is read."""

    @property
    def run_name(self) -> str:
        return self.streams[0].run.name

    @property
    def fault(self) -> str:
        """Why the controls cannot be shown; "" where they can."""
        return self._feed.fault or self.streams[0].fault or ""

    def _send(self, name: str, value: Value, clicks: int) -> None:
        for stream in self.streams:
            stream.set_control(name, value, clicks)

    def read(self, now: float) -> bool:
        """Take in what is new; return whether something looks different."""
        feed = self._feed
        feed.tend(now)
        for stream in self.streams[1:]:
            open_linked(stream)
        has_changed = self.content.settle(now)
        has_ended = not feed.stream.run.alive
        if has_ended != self.content.has_ended:
            self.content.has_ended = has_ended
            has_changed = True
        if feed.stream.version > feed.last_version and self._may_read(now):
            has_changed |= feed.take(now)
            self._next_read = now + _UNASKED_PERIOD_S
        return has_changed

    def _may_read(self, now: float) -> bool:
        """Return whether a new version is read now: a script may make many."""
        is_due = now >= self._next_read or self.is_answer(now)
        return is_due and now >= self._feed.next_read

    def is_answer(self, now: float) -> bool:
        """Return whether a new version may be the answer to a user of this viewer."""
        return now < self.content.set_at + _ANSWER_S

    def release(self) -> None:
        for stream in self.streams:
            stream.release()


class ControlsOfRuns:
    """The controls of all runs that are shown with a panel."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._streams: dict[RemoteRun, RemoteStream] = {}
        """The stream of controls of each run that has one."""
        self._streams_state = -1
        """Changes of the subscriber when `_streams` was found."""
        self._of_viewports: dict[ViewportLike, list[RunControls]] = {}
        """The controls beside each viewport."""
        self._opened: dict[tuple[int, ...], RunControls] = {}
        """By the `id` of each of their streams."""

    def controls_beside(self, viewport: ViewportLike) -> Sequence[RunControls]:
        """Return the controls of the runs that a viewport with a panel shows."""
        return self._of_viewports.get(viewport, ())

    def versions(self) -> dict[RemoteRun, int]:
        """Return the version of each run's controls: users make these."""
        return {run: stream.version for run, stream in self._streams.items()}

    def update(self) -> None:
        """Open the controls of what is shown with a panel, and release all others."""
        self._find_streams()
        if not self._streams and not self._opened:
            return
        self._of_viewports = {}
        opened: dict[tuple[int, ...], RunControls] = {}
        for viewport in self._catalogue.viewports:
            slot = self._catalogue.slot_of(viewport)
            if slot is None or not viewport.has_panel:
                continue
            controls_here: dict[RunControls, None] = {}
            for streams in self._streams_of(slot):
                key = tuple(map(id, streams))
                controls = opened.get(key) or self._opened.get(key)
                opened[key] = controls or RunControls(streams)
                controls_here[opened[key]] = None
            self._of_viewports[viewport] = list(controls_here)
        for key, controls in self._opened.items():
            if key not in opened:
                controls.release()
        self._opened = opened

    def _find_streams(self) -> None:
        subscriber = self._catalogue.subscriber
        if subscriber.changes == self._streams_state:
            return
        self._streams_state = subscriber.changes
        self._streams = {
            stream.run: stream
            for stream in subscriber.streams
            if about(stream.kind).of_run
        }

    def _streams_of(self, slot: Slot) -> list[list[RemoteStream]]:
        """Return the streams of controls of an entry's run, or of each that it compares.

        Processes that train together count as one run.
        """
        slots = self._catalogue.slots
        streams_found = []
        for key in slot.source.uses:
            if key in slots:
                streams_found += self._streams_of(slots[key])
        if slot.source.stream is not None:
            runs = runs_of(slot.source.stream)
            streams = [self._streams[run] for run in runs if run in self._streams]
            # The one that is read has to be alive.
            streams.sort(key=_has_ended)
            if streams:
                streams_found.append(streams)
        return streams_found

    def read(self, now: float) -> bool:
        """Read the controls that are shown; return whether something looks different."""
        if not self._streams and not self._opened:
            return False
        has_changed = False
        for controls in self._opened.values():
            if controls.read(now):
                has_changed = True
                self._mark(controls)
        for slot in self._catalogue.watched():
            if about(slot.entry.kind).controlled and slot.content is not None:
                has_changed |= self._note_controls(slot, now)
        return has_changed

    def _mark(self, controls: RunControls) -> None:
        """Draw the interface of the users who see these controls."""
        for viewport, controls_here in self._of_viewports.items():
            if controls in controls_here:
                viewport.user.mark_interface()

    def _note_controls(self, slot: Slot, now: float) -> bool:
        """Tell what is drawn with controls of their version; return whether it is new."""
        stream = self._streams.get(slot.source.stream.run)
        if stream is None:
            return False
        is_answer = any(
            stream in controls.streams and controls.is_answer(now)
            for controls in self._opened.values()
        )
        return slot.content.note_controls(stream.version, is_answer)


def _has_ended(stream: RemoteStream) -> bool:
    return not stream.run.alive
