"""Links: streams that feed the views of other streams (`Kind.links`).

A link leads to an entry of its own, such as the cameras of a scene or the plots of its run, or to streams that were
published over another one, such as the boxes over an image. Parts of a comparison are entries that are linked as well
(`Source.uses`). `Links` opens what viewports show and what is linked to it, and releases everything else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.series import scalar_rows, scalar_series
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds import about, links_of
from splatview_viewer.kinds.scalars.curves import Curve
from splatview_viewer.workspace.shards import runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.core.kind import Link
    from splatview_viewer.workspace.catalogue import Catalogue, Slot, ViewportLike

PLOT_PERIOD_S = 0.5
"""Between two values of what is seen in the panel alone."""
_FIRST_MISS_S = 0.0005
_LAST_MISS_S = 1 / 15
"""Between attempts to read what was announced and has not come: doubled with each, and the most."""
_COUNT_PERIOD_S = 0.25
_COUNTS = 2048
"""Between two looks at the number of Gaussians of each scene; how many of them are kept."""
_ON_HOST = ("ring", "host")
"""The transports of streams over another one: they are small, and the trainer's GPU copies them without a wait."""


def linked_to(
    stream: RemoteStream, streams: Iterable[RemoteStream]
) -> list[tuple[Link, RemoteStream]]:
    """Return those of `streams`, all that there are, that were published over this one. Of a name that was published
    again by a later run, the live ones.
    """
    links = {link.kind: link for link in links_of(stream.kind) if link.over}
    if not links:
        return []
    known = list(streams)
    over = [s for s in known if s.kind in links and s.info.over == stream.name]
    bases = [s for s in known if s.name == stream.name and not s.info.over]

    def base(fed: RemoteStream) -> RemoteStream:
        """The stream of the run that is named; otherwise of its own run, or the newest."""
        run = fed.info.over_run
        if run:
            return next((s for s in bases if s.run.id == run), fed)
        own = [s for s in bases if s.run is fed.run]
        live = [s for s in bases if s.run.alive and s.kind == stream.kind]
        return (own or live[-1:] or bases[-1:] or [fed])[0]

    found = [s for s in over if base(s) is stream]
    live = {s.name for s in found if s.run.alive}
    return [(links[s.kind], s) for s in found if s.run.alive or s.name not in live]


def open_linked(stream: RemoteStream) -> None:
    """Have a stream bring its frames to host memory. Idempotent and cheap."""
    stream.open()
    for _ in stream.info.transports:
        if stream.sharing in _ON_HOST or stream.fault or not stream.run.alive:
            return
        stream.refuse("read from host memory")


class _Feed:
    """A stream over an entry that is shown."""

    def __init__(self, link: Link, slot: Slot, stream: RemoteStream) -> None:
        self.link = link
        self.slot = slot
        self.stream = stream
        self.content: Any = None
        """The content that took its frames."""
        self.seen = 0
        self.next = 0.0
        self.fault = ""
        """`fault`: the reason why its newest frame cannot be shown."""
        self._missed = 0
        """Attempts in a row that brought nothing although something was announced."""

    def tend(self, now: float) -> None:
        open_linked(self.stream)
        content = self.slot.content
        if content is not self.content:  # other views than before
            self.content = content
            self.seen = 0
            self.fault = ""
        if content is not None:
            self.link.tend(content, self.stream, now)

    def take(self, now: float) -> bool:
        """Read the newest frame. True when there is something new for a picture."""
        stream = self.stream
        frame = stream.read(self.seen)
        if frame is None:
            self._missed += 1
            pause = min(_FIRST_MISS_S * 2.0 ** min(self._missed, 30), _LAST_MISS_S)
            self.next = now + pause
            if not stream.run.alive:  # what was announced last will not come any more
                self.seen = stream.version
            return False
        begin = time.perf_counter()
        self._missed = 0
        with frame:
            try:
                if not self.link.take(self.content, stream, frame):
                    return False
                self.fault = ""
            except ViewerError as e:
                self.fault = str(e)
            self.seen = frame.version
        cost = time.perf_counter() - begin
        self.next = now + (2 * cost if cost > 0.005 else 0.0)
        return True

    def release(self) -> None:
        self.stream.release()
        if self.content is not None and self.content is self.slot.content:
            self.link.drop(self.content, self.stream)


class Links:
    """Knows what is seen: the entries that viewports show, and what is linked to them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.watched: dict[Slot, bool] = {}
        """The entries that are seen; False: in the panel alone."""
        self._catalogue = catalogue
        self._seen: dict[ViewportLike, list[Slot]] = {}
        """The entries that are seen in each viewport, and in the panel beside it."""
        self._opened: dict[int, RemoteStream] = {}
        self._feeds: dict[int, _Feed] = {}
        """Both by the stream's id()."""

    # -- which entries ---------------------------------------------------------------------------------------------

    def plots(self, slot: Slot) -> list[Slot]:
        """Return the entries that are plotted in the panel beside another one: one of a kind at most."""
        return list(self._of_run(slot, plotted=True).values())

    def _parts(self, slot: Slot) -> list[Slot]:
        """Return the entries that are seen in the picture of another one."""
        slots = self._catalogue.slots
        parts = [slots[key] for key in slot.source.uses if key in slots]
        return [
            *parts,
            *(deep for part in parts for deep in self._parts(part)),
            *self._of_run(slot, plotted=False).values(),
        ]

    def _of_run(self, slot: Slot, *, plotted: bool) -> dict[Link, Slot]:
        """Return the entries of the run whose stream an entry shows, by the links that lead to them."""
        stream = slot.source.stream
        links = [
            link
            for link in links_of(slot.entry.kind)
            if not link.over and link.plotted == plotted
        ]
        if stream is None or not links:
            return {}
        runs = runs_of(stream)
        first = {
            s.entry.kind: s
            for s in reversed(self._catalogue.slots.values())
            if s.source.stream is not None and s.source.stream.run in runs
        }
        return {link: first[link.kind] for link in links if link.kind in first}

    def seen_by(self, viewport: ViewportLike, slot: Slot) -> bool:
        """Return whether a viewport, or the panel beside it, shows an entry."""
        return slot in self._seen.get(viewport, ())

    # -- once a turn -----------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Open what is seen from now on, release what is not any more, and hand over what is shared."""
        catalogue = self._catalogue
        before = self.watched
        self._seen = {}
        self.watched = {}
        for viewport in catalogue.viewports:
            shown = catalogue.shown(viewport)
            if shown is not None:
                pictures = [shown, *self._parts(shown)]
                plots = self.plots(shown) if viewport.has_panel else []
                self._seen[viewport] = [*pictures, *plots]
                self.watched = (
                    dict.fromkeys(plots, False)
                    | self.watched
                    | dict.fromkeys(pictures, True)
                )
        for slot in self.watched:
            if slot not in before:
                slot.entry.fault = ""
                slot.source.open()
        for slot in before:
            if slot not in self.watched and slot.entry.key in catalogue.slots:
                catalogue.let_go(slot)
        for slot in catalogue.slots.values():
            linked = self._of_run(slot, plotted=False) if slot in self.watched else {}
            for link in (
                links_of(slot.entry.kind)
                if slot.views and slot.source.stream is not None
                else ()
            ):
                if not (link.over or link.plotted):
                    if link in linked:
                        content = linked[link].content
                    else:
                        content = None
                    with catalogue.guard(slot):
                        for view in slot.views.values():
                            link.use(view.view, content)
        self._share()

    def _share(self) -> None:
        """Have runs share the streams that are used, and no others. Runs and streams come and go."""
        catalogue = self._catalogue
        streams = self._catalogue.subscriber.streams
        wanted = {
            id(stream): stream
            for slot in catalogue.slots.values()
            for stream in slot.source.streams
        }
        over = {
            id(fed): (link, slot, fed)
            for slot in self.watched
            if slot.source.stream is not None
            for link, fed in linked_to(slot.source.stream, streams)
        }
        for key, stream in self._opened.items():
            if key not in wanted:
                stream.release()
        for key, stream in wanted.items():
            if key not in self._opened:
                stream.open()
        for key, feed in list(self._feeds.items()):
            if key not in over or over[key][1] is not feed.slot:
                self._feeds.pop(key).release()
        self._opened = wanted
        self._feeds = {
            key: self._feeds.get(key) or _Feed(*found) for key, found in over.items()
        }

    def read(self, now: float) -> bool:
        """Read the streams over those that are seen. True when there is something new for a picture."""
        news = False
        for feed in self._feeds.values():
            feed.tend(now)
            if self._ready(feed, now):
                with self._catalogue.guard(feed.slot):
                    news |= feed.take(now)
        return news

    def has_news(self, now: float) -> bool:
        return any(self._ready(feed, now) for feed in self._feeds.values())

    def _ready(self, feed: _Feed, now: float) -> bool:
        view = feed.slot.view
        if (
            feed.stream.version <= feed.seen
            or now < feed.next
            or feed.content is None
            or view is None
            or view.empty
        ):
            return False
        users = [
            viewport.user for viewport, seen in self._seen.items() if feed.slot in seen
        ]
        return any(
            user.screen.state.visible and user.takes(now) and now >= user.may_draw(now)
            for user in users
        )

    def troubles(self, slot: Slot) -> list[str]:
        """Return what is wrong with the stream that an entry shows, or with those over it, in their publishers' words.
        Plots write it themselves.
        """
        out = [slot.source.trouble] if not about(slot.entry.kind).strip else []
        for feed in self._feeds.values():
            if feed.slot is slot and feed.content is not None:
                out += [
                    feed.link.trouble(feed.content, feed.stream),
                    feed.fault or feed.stream.fault or "",
                ]
        return [text for text in dict.fromkeys(out) if text]


# -- the number of Gaussians, beside what a run logs ------------------------------------------------------------------


class Counts:
    """The number of Gaussians of each scene over time: seen from outside, whether or not the run logs it."""

    def __init__(self) -> None:
        self.curves: dict[int, Curve] = {}
        """By the id() of the stream: of scenes whose number has changed. Steps are versions."""
        self._seen: dict[int, tuple[Any, int, int]] = {}
        """The series of each scene, its last number and the version that had it."""
        self._next_at = 0.0

    def update(self, catalogue: Catalogue, now: float) -> None:
        """Take down the number of Gaussians of all scenes; opens none, as shapes are known anyway."""
        if now < self._next_at:
            return
        self._next_at = now + _COUNT_PERIOD_S
        changed = False
        streams = [*catalogue.subscriber.streams, *catalogue.shards.streams]
        scenes = {
            id(stream): stream for stream in streams if about(stream.kind).counted
        }
        self.curves = {
            key: curve for key, curve in self.curves.items() if key in scenes
        }
        self._seen = {key: seen for key, seen in self._seen.items() if key in scenes}
        for key, scene in scenes.items():
            series, number, last = self._seen.get(key) or (
                scalar_series(_COUNTS),
                -1,
                -1,
            )
            shape = scene.shape
            version = scene.version
            if not (scene.run.alive and shape and version) or (shape[0], version) == (
                number,
                last,
            ):
                continue
            series.extend(
                scalar_rows(np.array([[version, time.time(), shape[0]]], np.float64))
            )
            self._seen[key] = series, shape[0], version
            if key in self.curves or 0 <= number != shape[0]:
                self.curves[key] = Curve.of(scene.name, series.rows)
            changed |= number != shape[0]
        if changed:
            catalogue.rate_changes += 1
            for slot in catalogue.slots.values():
                if (
                    not about(slot.entry.kind).plots_counts
                    or slot.view is None
                    or slot.source.stream is None
                ):
                    continue
                # beside what the run logs, by its steps, not versions
                logged = slot.view.content.curves
                beside = []
                found = [
                    self.curves.get(id(stream))
                    for stream in slot.source.stream.run.streams.values()
                ]
                for curve in found if logged.all else ():
                    if curve is not None:
                        rows = np.array(curve.rows, order="F")
                        rows[:, 0] = np.interp(
                            rows[:, 1], logged.clock["time"], logged.clock["step"]
                        )
                        beside.append(Curve.of(curve.name, rows))
                if beside:
                    slot.view.content.beside = {"Gaussians": beside}
