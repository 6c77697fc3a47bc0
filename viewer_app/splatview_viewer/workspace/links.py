"""Links: streams that feed the views of other streams (`Kind.links`).

A link leads to an entry of its own, such as the cameras of a scene or the plots of its
run, or to streams that were published over another one, such as the boxes over an
image. Parts of a comparison are entries that are linked as well (`ValueSource.uses`).
`Links` opens what viewports show and what is linked to it, and releases everything
else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds import about, links_of
from splatview_viewer.workspace.shards import runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.core.kind import Link
    from splatview_viewer.workspace.catalogue import Catalogue, UserLike, ViewportLike
    from splatview_viewer.workspace.slot import Slot

PLOT_PERIOD_S = 0.5
"""Seconds between two values of what is visible in the panel alone."""
_FIRST_MISS_S = 0.000125
"""Seconds to the second attempt to read what was announced and has not come; each
further attempt doubles them."""
_LAST_MISS_S = 1 / 15
"""The most seconds between two attempts."""
_SLOW_TAKE_S = 0.005
"""Seconds of taking a frame from which on the next one is delayed."""
_ON_HOST = ("ring", "host")
"""The transports of most streams over another one: they are small, and the trainer's GPU
copies them without a wait."""
_COPIED = ("ring", "device-ring", "host")
"""The transports of links that take frames on a GPU."""


def linked_to(
    stream: RemoteStream, streams: Iterable[RemoteStream]
) -> list[tuple[Link, RemoteStream]]:
    """Return those of all `streams` that were published over one, with their links.

    Of a name that was published again by a later run, only the live ones.
    """
    links = {link.kind: link for link in links_of(stream.kind) if link.over}
    if not links:
        return []
    all_streams = list(streams)
    bases = [s for s in all_streams if s.name == stream.name and not s.info.over]
    over_streams = []
    for candidate in all_streams:
        is_over_name = candidate.kind in links and candidate.info.over == stream.name
        if is_over_name and _base_of(candidate, bases, stream.kind) is stream:
            over_streams.append(candidate)
    live_names = {s.name for s in over_streams if s.run.alive}
    return [
        (links[s.kind], s)
        for s in over_streams
        if s.run.alive or s.name not in live_names
    ]


def _base_of(
    linked: RemoteStream, bases: list[RemoteStream], kind: str
) -> RemoteStream | None:
    """Return the one of `bases` that a stream lies over, which all have the right name.

    It is of the run that the stream names, otherwise of its own run, or the newest live
    one of this kind, or the newest.
    """
    run_id = linked.info.over_run
    if run_id:
        return next((base for base in bases if base.run.id == run_id), None)
    for base in bases:
        if base.run is linked.run:
            return base
    live = [base for base in bases if base.run.alive and base.kind == kind]
    if live:
        return live[-1]
    if not bases:
        return None
    return bases[-1]


def open_linked(stream: RemoteStream, *, on_gpu: bool = False) -> None:
    """Have a stream bring its frames to host memory. Idempotent and cheap.

    Args:
        stream: the stream.
        on_gpu: frames may come in GPU memory as well.
    """
    stream.open()
    transports = _COPIED if on_gpu else _ON_HOST
    for _ in stream.info.transports:
        if stream.sharing in transports or stream.fault or not stream.run.alive:
            return
        stream.refuse("read from host memory")


class _LinkedStream(NamedTuple):
    """A stream that lies over an entry."""

    link: Link
    slot: Slot
    stream: RemoteStream


class Fed(Protocol):
    """Whatever shows a stream that others lie over."""

    @property
    def content(self) -> Any:
        """The content that takes their frames; None while there is none."""
        ...


FedT = TypeVar("FedT", bound=Fed)


class Feed(Generic[FedT]):
    """Reads a stream over one that is shown."""

    def __init__(self, link: Link, slot: FedT, stream: RemoteStream) -> None:
        self.link = link
        self.slot = slot
        self.stream = stream
        self.content: Any = None
        """The content that took its frames."""
        self.last_version = 0
        """The version that was read last; 0: none."""
        self.next_read = 0.0
        self.fault = ""
        """The reason why its newest frame cannot be shown; "": it can be."""
        self._missed = 0
        """Attempts in a row that brought nothing although something was announced."""

    def tend(self, now: float) -> bool:
        """Open the stream, and do what its link does in each turn.

        Returns whether a frame is going to come soon.
        """
        open_linked(self.stream, on_gpu=self.link.on_gpu)
        content = self.slot.content
        if content is not self.content:
            # The entry has other views than before.
            self.content = content
            self.last_version = 0
            self.fault = ""
        if content is None:
            return False
        return self.link.tend(content, self.stream, now)

    def take(self, now: float) -> bool:
        """Read the newest frame; return whether there is something new to draw.

        Of a link in order, all frames that have come.
        """
        try:
            if self.link.in_order:
                return self._take_all(now)
            return self._take(self.stream.read(self.last_version), now)
        except SharingError as error:
            # The same data may come by another transport.
            self.stream.refuse(str(error))
            self._note_miss(now)
            return False

    def _take_all(self, now: float) -> bool:
        """Read all frames that have come, the oldest first."""
        has_change = False
        frame = self.stream.read_next(self.last_version)
        while frame is not None:
            version = frame.version
            has_change |= self._take(frame, now)
            # What was overwritten meanwhile is not read again.
            self.last_version = max(self.last_version, version)
            frame = self.stream.read_next(self.last_version)
        if self.last_version < self.stream.version:
            self._note_miss(now)
        return has_change

    def _take(self, frame: StreamFrame | None, now: float) -> bool:
        """Have the content take a frame; return whether it did."""
        stream = self.stream
        if frame is None:
            self._note_miss(now)
            return False
        started_at = time.perf_counter()
        self._missed = 0
        with frame:
            try:
                if not self.link.take(self.content, stream, frame):
                    return False
                self.fault = ""
            except ViewerError as e:
                self.fault = str(e)
            self.last_version = frame.version
        seconds = time.perf_counter() - started_at
        self.next_read = now
        if seconds > _SLOW_TAKE_S:
            self.next_read += 2 * seconds
        return True

    def _note_miss(self, now: float) -> None:
        self._missed += 1
        pause = min(_FIRST_MISS_S * 2.0 ** min(self._missed, 30), _LAST_MISS_S)
        self.next_read = now + pause
        if not self.stream.run.alive:
            # What an ended run announced last will not come any more.
            self.last_version = self.stream.version

    def release(self) -> None:
        self.stream.release()
        if self.content is not None and self.content is self.slot.content:
            self.link.drop(self.content, self.stream)


class Links:
    """The visible entries: those that viewports show, and those linked to them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.watched: dict[Slot, bool] = {}
        """The visible entries; False: in the panel alone."""
        self._catalogue = catalogue
        self._visible: dict[ViewportLike, list[Slot]] = {}
        """The entries that are visible in each viewport, and in the panel beside it."""
        self._opened: dict[int, RemoteStream] = {}
        """The streams of visible entries, by their `id`."""
        self._feeds: dict[int, Feed[Slot]] = {}
        """Readers of the streams over visible entries, by the `id` of the stream."""
        self._fed_state: object = None
        """The streams and visible entries when the readers were found last."""
        self._kinds_of_runs: dict[RemoteRun, dict[str, Slot]] = {}
        """The first entry of each kind of each run."""
        self._kinds_state: object = None
        """The list and streams when `_kinds_of_runs` was found last."""

    # -- which entries -----------------------------------------------------------------

    def plots(self, slot: Slot) -> list[Slot]:
        """Return the entries plotted in the panel beside one: one of a kind at most."""
        slots = self._catalogue.slots
        for key in slot.source.uses:
            # Those of the first part of a comparison.
            if key in slots:
                return self.plots(slots[key])
        return list(self._of_run(slot, plotted=True).values())

    def _in_picture(self, slot: Slot) -> list[Slot]:
        """Return the entries that are visible in the picture of another one."""
        slots = self._catalogue.slots
        slots_used = [slots[key] for key in slot.source.uses if key in slots]
        nested = []
        for slot_used in slots_used:
            nested += self._in_picture(slot_used)
        return [*slots_used, *nested, *self._of_run(slot, plotted=False).values()]

    def _of_run(self, slot: Slot, *, plotted: bool) -> dict[Link, Slot]:
        """Return the entries of the run of an entry's stream, by the links to them."""
        stream = slot.source.stream
        if stream is None:
            return {}
        own_links = [link for link in links_of(slot.entry.kind) if not link.over]
        links = [link for link in own_links if link.plotted == plotted]
        if not links:
            return {}
        by_run = self._first_of_kinds()
        first_of_kind: dict[str, Slot] = {}
        for run in runs_of(stream):
            first_of_kind = by_run.get(run, {}) | first_of_kind
        return {
            link: first_of_kind[link.kind]
            for link in links
            if link.kind in first_of_kind
        }

    def _first_of_kinds(self) -> dict[RemoteRun, dict[str, Slot]]:
        """Return the first entry of each kind of each run, found anew after changes."""
        catalogue = self._catalogue
        state = catalogue.list_changes, catalogue.subscriber.changes
        if state != self._kinds_state:
            self._kinds_state = state
            self._kinds_of_runs = {}
            for slot in catalogue.slots.values():
                stream = slot.source.stream
                if stream is not None:
                    kinds = self._kinds_of_runs.setdefault(stream.run, {})
                    kinds.setdefault(slot.entry.kind, slot)
        return self._kinds_of_runs

    def _plotted_in(self, viewport: ViewportLike) -> list[Slot]:
        """Return the entries that additions plot in a viewport, or in its panel."""
        catalogue = self._catalogue
        keys = [k for feature in catalogue.features for k in feature.uses(viewport)]
        return [catalogue.slots[key] for key in keys if key in catalogue.slots]

    def viewports_of(self, slot: Slot) -> list[ViewportLike]:
        """Return the viewports that show an entry, or whose panel shows it."""
        return [
            viewport
            for viewport in self._catalogue.viewports
            if slot in self._visible.get(viewport, ())
        ]

    # -- once a turn -------------------------------------------------------------------

    def update_watched(self) -> list[Slot]:
        """Find and open the visible entries.

        Returns those that are not visible any more. The caller releases them and calls
        `hand_over`.
        """
        catalogue = self._catalogue
        previous = self.watched
        self._visible = {}
        self.watched = {}
        for viewport in catalogue.viewports:
            slot = catalogue.slot_of(viewport)
            if slot is None:
                continue
            pictures = [slot, *self._in_picture(slot)]
            plots = self._plotted_in(viewport)
            if viewport.has_panel:
                plots += self.plots(slot)
            self._visible[viewport] = [*pictures, *plots]
            in_panel = dict.fromkeys(plots, False)
            self.watched = in_panel | self.watched | dict.fromkeys(pictures, True)
        for slot in self.watched:
            if slot not in previous:
                slot.entry.fault = ""
                slot.source.open()
        hidden = [slot for slot in previous if slot not in self.watched]
        return [slot for slot in hidden if slot.entry.key in catalogue.slots]

    def hand_over(self) -> None:
        """Give views the content of linked entries, and have runs share what is used."""
        for slot in self._catalogue.slots.values():
            if slot.views and slot.source.stream is not None:
                self._hand_over_contents(slot)
        self._share_streams()

    def _hand_over_contents(self, slot: Slot) -> None:
        """Have an entry's views use the content of the entries that are linked to it."""
        is_visible = slot in self.watched
        linked: dict[Link, Slot] = {}
        if is_visible:
            linked = self._of_run(slot, plotted=False)
        for link in links_of(slot.entry.kind):
            if link.over or link.plotted:
                continue
            content = None
            if link in linked:
                content = linked[link].content
            with self._catalogue.guard(slot):
                for view in slot.views.values():
                    link.use(view.view, content)

    def _share_streams(self) -> None:
        """Have runs share the streams that are used, and no others."""
        catalogue = self._catalogue
        slots: Iterable[Slot] = self.watched
        if catalogue.recorder is not None and catalogue.recorder.options.folder:
            # What is written to disk is shared though it is not seen.
            slots = catalogue.slots.values()
        used: dict[int, RemoteStream] = {}
        for slot in slots:
            used.update((id(stream), stream) for stream in slot.source.streams)
        for key, stream in self._opened.items():
            if key not in used:
                stream.release()
        for key, stream in used.items():
            if key not in self._opened:
                stream.open()
        self._opened = used
        self._update_feeds()

    def _update_feeds(self) -> None:
        """Read the streams over the visible entries, and over those at work."""
        subscriber = self._catalogue.subscriber
        slots = [*self.watched, *self._working_slots()]
        state = subscriber.changes, slots
        if state == self._fed_state:
            return
        self._fed_state = state
        streams = subscriber.streams
        linked_streams: dict[int, _LinkedStream] = {}
        for slot in slots:
            if slot.source.stream is None:
                continue
            for link, stream in linked_to(slot.source.stream, streams):
                linked_streams[id(stream)] = _LinkedStream(link, slot, stream)
        for key, feed in list(self._feeds.items()):
            if key not in linked_streams or linked_streams[key].slot is not feed.slot:
                self._feeds.pop(key).release()
        self._feeds = {
            key: self._feeds.get(key) or Feed(*linked)
            for key, linked in linked_streams.items()
        }

    def _working_slots(self) -> list[Slot]:
        """Return the entries out of sight whose views work on, such as on a film."""
        return [
            slot
            for slot in self._catalogue.slots.values()
            if slot not in self.watched
            and any(slot_view.view.jobs() for slot_view in slot.views.values())
        ]

    def read(self, now: float) -> bool:
        """Read the streams over visible entries.

        Returns whether there is news to draw, or some to come soon.
        """
        has_change = False
        for feed in self._feeds.values():
            has_change |= feed.tend(now)
            if self._is_ready(feed, now):
                with self._catalogue.guard(feed.slot):
                    has_change |= feed.take(now)
                if feed.link.in_order:
                    # An answer makes room for the next request.
                    feed.tend(now)
        return has_change

    def has_new_frame(self, now: float) -> bool:
        """Return whether `read` would read a frame."""
        return any(self._is_ready(feed, now) for feed in self._feeds.values())

    def _is_ready(self, feed: Feed[Slot], now: float) -> bool:
        """Return whether a feed has a new frame, which would soon be drawn."""
        view = feed.slot.view
        if feed.stream.version <= feed.last_version or now < feed.next_read:
            return False
        if feed.link.in_order:
            return feed.content is not None
        if feed.content is None or view is None or view.empty:
            return False
        viewports = self.viewports_of(feed.slot)
        return any(_draws_now(viewport.user, now) for viewport in viewports)

    def troubles(self, slot: Slot) -> list[str]:
        """Return what publishers report to be wrong with the streams of an entry.

        They are the stream that it shows and those over it. Plots, and views of what
        another program draws, write it themselves.
        """
        troubles: list[str] = []
        view = slot.view
        is_written = view is not None and view.view.fault_text == slot.source.trouble
        if not about(slot.entry.kind).strip and not is_written:
            troubles.append(slot.source.trouble)
        for feed in self._feeds.values():
            if feed.slot is slot and feed.content is not None:
                troubles.append(feed.link.trouble(feed.content, feed.stream))
                troubles.append(feed.fault or feed.stream.fault or "")
        return [trouble for trouble in dict.fromkeys(troubles) if trouble]


def _draws_now(user: UserLike, now: float) -> bool:
    """Return whether a user's screen would draw a new value now."""
    is_visible = user.screen.state.visible
    return is_visible and user.accepts_value(now) and now >= user.may_draw(now)
