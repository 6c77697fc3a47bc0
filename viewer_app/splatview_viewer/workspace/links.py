"""Links: streams that feed the views of other streams (`Kind.links`), in the viewer and in single pictures.

A link leads to an entry of its own, such as the cameras of a scene or the plots of its run, or to streams that were
published over another one, such as the boxes over an image. Parts of a comparison are entries that are linked as well
(`Source.uses`). `Links` opens, reads and releases what is linked to what viewports show.

For a single picture (`splatview shot`, `splatview.grab`):

    linked = LinkedFrames(subscriber, stream, now)
    frames = linked.poll(now)                  # until it is not None: at once or within a moment
    for frame in frames: frame.close()
    release_linked(subscriber, stream)         # when no more pictures are wanted
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.series import scalar_rows, scalar_series
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds import SCENES, STRIPS, about, links_of
from splatview_viewer.kinds.scalars.curves import Curve
from splatview_viewer.workspace.shards.grouping import belongs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.kind import Link
    from splatview_viewer.workspace.catalogue import Catalogue, Slot
    from splatview_viewer.workspace.viewport import Viewport

PLOT_PERIOD_S = 0.5
"""Between two values of what is seen in the panel alone."""
_PATIENCE_S = 0.5
"""For streams over another one that a single picture needs."""
_COUNT_PERIOD_S, _COUNTS = 0.25, 2048
"""Between two looks at the number of Gaussians of each scene; how many of them are kept."""
_ON_HOST = ("ring", "host")
"""The transports of streams over another one: they are small, and the trainer's GPU copies them without a wait."""


def linked_to(stream: RemoteStream, streams: Iterable[RemoteStream]) -> list[tuple[Link, RemoteStream]]:
    """Return those of `streams`, all that there are, that were published over this one. Of a name that was published
    again by a later run, the live ones."""
    links = {link.kind: link for link in links_of(stream.kind) if link.over}
    if not links:
        return []
    known = list(streams)
    over = [s for s in known if s.kind in links and s.info.over == stream.name]
    found = [s for s in over if _base(s, stream.kind, known) is stream]
    live = {s.name for s in found if s.run.alive}
    return [(links[s.kind], s) for s in found if s.run.alive or s.name not in live]


def _base(fed: RemoteStream, kind: str, streams: Sequence[RemoteStream]) -> RemoteStream | None:
    """The stream that another one was published over: that of the run it names; otherwise its own run's, or the newest.
    """
    found = [s for s in streams if s.name == fed.info.over and not s.info.over]
    if run := fed.info.over_run:
        return next((s for s in found if s.run.id == run), None)
    own = [s for s in found if s.run is fed.run]
    live = [s for s in found if s.run.alive and s.kind == kind]
    return (own or live[-1:] or found[-1:] or [None])[0]


def _open(stream: RemoteStream) -> None:
    """Have a stream bring its frames to host memory. Idempotent and cheap."""
    stream.open()
    for _ in stream.info.transports:
        if stream.sharing in _ON_HOST or stream.fault or not stream.run.alive:
            return
        stream.refuse("read from host memory")


# -- single pictures -------------------------------------------------------------------------------------------------


class LinkedFrames:
    """The newest frame of each stream over another one that belongs into a single picture of it."""

    def __init__(self, subscriber: Subscriber, stream: RemoteStream, begin: float, timeout: float = _PATIENCE_S,
                 own: float = 0.0) -> None:
        """Opens what is not open. Waits `timeout` seconds at most after `begin` for what has something to bring; `own`,
        if that is more, for streams of the same run."""
        self._subscriber, self._run, self._begin = subscriber, stream.run, begin
        self._timeout, self._own = timeout, max(timeout, own)
        self._waiting = [s for link, s in linked_to(stream, subscriber.streams) if link.still]
        self._frames: list[Frame] = []

    def poll(self, now: float) -> list[Frame] | None:
        """Return the frames, which the caller closes, once all are there; None: not yet."""
        self._subscriber.poll()
        for fed in list(self._waiting):
            _open(fed)
            late = now - self._begin > (self._own if fed.run is self._run else self._timeout)  # then an older one does
            done = late or not fed.version or fed.fault or not fed.run.alive
            if (frame := fed.read(0 if done else fed.version - 1)) is not None:
                self._frames.append(frame)
            if frame is not None or done:
                self._waiting.remove(fed)
        return None if self._waiting else self._frames


def release_linked(subscriber: Subscriber, stream: RemoteStream) -> None:
    """Release what `LinkedFrames` opened. Idempotent."""
    for _, fed in linked_to(stream, subscriber.streams):
        fed.release()


# -- the viewer -------------------------------------------------------------------------------------------------------


class _Feed:
    """A stream that is read because an entry is shown which it was published over."""

    def __init__(self, link: Link, slot: Slot, stream: RemoteStream) -> None:
        self.link, self.slot, self.stream = link, slot, stream
        self.content: Any = None
        """The content that took its frames."""
        self.seen = 0
        self.next = 0.0
        self.fault = ""
        """Why its newest frame cannot be shown."""


class _Count:
    """The number of Gaussians of a scene over time: seen from outside, whether or not the run logs it."""

    def __init__(self) -> None:
        self.curve: Curve | None = None
        """Once the number has changed. Its steps are versions."""
        self._series = scalar_series(_COUNTS)
        self._last = (-1, -1)
        """The number, and the version that had it."""

    def look(self, stream: Any) -> bool:
        """Return whether there are more or less than before."""
        shape, version, before = stream.shape, stream.version, self._last[0]
        if not shape or not version or (shape[0], version) == self._last:
            return False
        self._series.extend(scalar_rows(np.array([[version, time.time(), shape[0]]], np.float64)))
        self._last = shape[0], version
        if self.curve is not None or 0 <= before != shape[0]:
            self.curve = Curve.of(stream.name, self._series.rows)
        return before != shape[0]


class Links:
    """Opens, reads and releases what is linked to the entries that viewports show, and nothing else."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.slots: list[Slot] = []
        """Entries that are open because a viewport shows another one."""
        self._catalogue = catalogue
        self._beside: dict[Viewport, list[Slot]] = {}
        """The linked entries of each viewport."""
        self._shown: list[Slot] = []
        """The part of `slots` that is seen in pictures."""
        self._feeds: dict[int, _Feed] = {}
        """By the stream's id()."""
        self._counts: dict[int, _Count] = {}
        """By the id() of a scene's stream."""
        self._count_at = 0.0

    # -- which entries ---------------------------------------------------------------------------------------------

    def entries(self, slot: Slot | None) -> list[Slot]:
        """Return the entries that are seen in the picture of another one."""
        if slot is None:
            return []
        slots = self._catalogue.slots
        parts = [slots[key] for key in slot.source.uses if key in slots]
        return [*parts, *(deep for part in parts for deep in self.entries(part)), *self._of_run(slot, plotted=False)]

    def plots(self, slot: Slot | None) -> list[Slot]:
        """Return the entries that are plotted in the panel beside another one: one of a kind at most."""
        return [] if slot is None else self._of_run(slot, plotted=True)

    def _of_run(self, slot: Slot, *, plotted: bool) -> list[Slot]:
        if slot.source.stream is None:
            return []
        found = [self._linked(link, slot) for link in links_of(slot.entry.kind) if not link.over
                 and link.plotted == plotted]
        return [entry for entry in found if entry is not None]

    def _linked(self, link: Link, slot: Slot) -> Slot | None:
        """The entry of the link's kind of the run whose stream an entry shows."""
        return next((s for s in self._catalogue.slots.values() if s.entry.kind == link.kind
                     and s.source.stream is not None and belongs(s.source.stream.run, slot.source.stream.run)), None)

    def seen_by(self, pane: Viewport, slot: Slot) -> bool:
        """Return whether a viewport, or the panel beside it, shows an entry linked to its own."""
        return slot in self._beside.get(pane, ())

    def only_plotted(self, slot: Slot) -> bool:
        """Return whether an entry is seen in the panel alone."""
        return slot in self.slots and slot not in self._shown and all(
            pane.key != slot.entry.key for pane in self._catalogue.panes)

    # -- once a turn -----------------------------------------------------------------------------------------------

    def update(self, now: float) -> None:
        """Open what is seen from now on, release what is not, and hand over what is shared."""
        catalogue, before = self._catalogue, self.slots
        self._count(now)
        shown = {pane: self.entries(catalogue.shown(pane)) for pane in catalogue.panes}
        self._beside = {pane: [*slots, *(self.plots(catalogue.shown(pane)) if pane.has_panel else ())]
                        for pane, slots in shown.items()}
        self._shown = [slot for slots in shown.values() for slot in slots]
        self.slots = list(dict.fromkeys(slot for slots in self._beside.values() for slot in slots))
        for slot in self.slots:
            if slot not in before:
                slot.entry.fault = ""
                slot.source.open()
        for slot in before:
            if slot not in self.slots and slot.entry.key in catalogue.slots:
                catalogue.let_go(slot)
        watched = catalogue.watched()
        for slot in catalogue.slots.values():
            for link in links_of(slot.entry.kind) if slot.views and slot.source.stream is not None else ():
                if not (link.over or link.plotted):
                    linked = self._linked(link, slot) if slot in watched else None
                    content = getattr(linked.view, "content", None) if linked is not None else None
                    for view in slot.views.values():
                        link.use(view, content)

    def read(self, now: float) -> bool:
        """Read what is new of the streams over those that are shown: runs and streams come and go, and users show
        something else. True when there is something new for a picture."""
        streams = self._catalogue.subscriber.streams
        wanted = {id(fed): (link, slot, fed) for slot in self._catalogue.watched() if slot.source.stream is not None
                  for link, fed in linked_to(slot.source.stream, streams)}
        for key, feed in list(self._feeds.items()):
            if key not in wanted or wanted[key][1] is not feed.slot:
                del self._feeds[key]
                feed.stream.release()
                if feed.content is not None and feed.content is getattr(feed.slot.view, "content", None):
                    feed.link.drop(feed.content, feed.stream)
        for key, found in wanted.items():
            if key not in self._feeds:
                self._feeds[key] = _Feed(*found)
        news = False
        for feed in list(self._feeds.values()):
            _open(feed.stream)
            content = getattr(feed.slot.view, "content", None)
            if content is not feed.content:  # other views than before
                feed.content, feed.seen, feed.fault = content, 0, ""
            if content is not None:
                feed.link.tend(content, feed.stream, now)
                news |= self._ready(feed, now) and self._take(feed, now)
        return news

    def has_news(self, now: float) -> bool:
        """Return whether `read` would read something."""
        return any(self._ready(feed, now) for feed in self._feeds.values())

    def _ready(self, feed: _Feed, now: float) -> bool:
        if feed.stream.version <= feed.seen or now < feed.next:
            return False
        slot, view = feed.slot, feed.slot.view
        return view is not None and not view.empty and any(
            pane.seat.screen.state.visible and pane.seat.takes(now) and now >= pane.seat.may_draw(now)
            for pane in self._catalogue.panes if pane.key == slot.entry.key or self.seen_by(pane, slot))

    def _take(self, feed: _Feed, now: float) -> bool:
        stream = feed.stream
        frame = stream.read(feed.seen)
        if frame is None:
            feed.next = now + 0.001
            if not stream.run.alive:  # what was announced last will not come any more
                feed.seen = stream.version
            return False
        begin = time.perf_counter()
        with frame, self._catalogue.guard(feed.slot):
            try:
                if not feed.link.take(feed.content, stream, frame):
                    return False
                feed.fault = ""
            except ViewerError as e:
                feed.fault = str(e)
            feed.seen = frame.version
        cost = time.perf_counter() - begin
        feed.next = now + (2 * cost if cost > 0.005 else 0.0)
        return True

    def troubles(self, slot: Slot) -> list[str]:
        """Return what is wrong with the stream that an entry shows, or with those over it, in their publishers' words.
        Plots write it themselves."""
        out = [slot.source.trouble] if slot.entry.kind not in STRIPS else []
        for feed in self._feeds.values():
            if feed.slot is slot and feed.content is not None:
                out.append(feed.link.trouble(feed.content, feed.stream))
                out.append(feed.fault or feed.stream.fault or "")
        return [text for text in dict.fromkeys(out) if text]

    # -- the number of Gaussians, beside what a run logs --------------------------------------------------------------

    def count_of(self, stream: Any) -> Curve | None:
        """Return the number of Gaussians of a scene over time, if that ever changed."""
        count = self._counts.get(id(stream))
        return None if count is None else count.curve

    def _count(self, now: float) -> None:
        """Take down the number of Gaussians of all scenes; opens none, as shapes are known anyway."""
        if now < self._count_at:
            return
        self._count_at, catalogue = now + _COUNT_PERIOD_S, self._catalogue
        scenes = [s for s in [*catalogue.subscriber.streams, *catalogue.shards.streams] if s.kind in SCENES]
        self._counts = {id(scene): self._counts.get(id(scene)) or _Count() for scene in scenes}
        if not any([scene.run.alive and self._counts[id(scene)].look(scene) for scene in scenes]):
            return
        catalogue.rate_changes += 1
        for slot in catalogue.slots.values():
            content: Any = getattr(slot.view, "content", None)
            if about(slot.entry.kind).counts and content is not None and slot.source.stream is not None:
                beside = []
                for stream in slot.source.stream.run.streams.values() if content.curves.all else ():
                    if (curve := self.count_of(stream)) is not None:
                        rows, clock = np.array(curve.rows, order="F"), content.curves.clock
                        rows[:, 0] = np.interp(rows[:, 1], clock["time"], clock["step"])  # steps instead of versions
                        beside.append(Curve.of(curve.name, rows))
                if beside:
                    content.show_beside({"Gaussians": beside})
