"""Overlays: which streams of kind overlay belong to which image, in the viewer and for single pictures.

For a single picture (`splatview shot`, `splatview.grab`):

    overlays = newest_overlays(subscriber, stream)        # frames, read at once or within a moment
    for frame in overlays: frame.close()
    release_overlays(subscriber, stream)                  # when no more pictures are wanted
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeGuard

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.workspace.catalogue import Catalogue, Slot

_PATIENCE = 0.5
"""Seconds to wait for overlays that a single picture needs."""
_ON_HOST = ("ring", "host")
"""The ways that bring them: they are small, and the trainer's GPU copies them without anybody waiting for it."""


# -- single pictures -------------------------------------------------------------------------------------------------


def overlays_of(stream: RemoteStream, streams: Iterable[RemoteStream]) -> list[RemoteStream]:
    """Those of `streams`, all that there are, that lie over this one."""
    if stream.kind != "image":
        return []
    known = list(streams)
    return [s for s in known if s.kind == "overlay" and s.info.over == stream.name and _base(s, known) is stream]


def _base(overlay: RemoteStream, streams: Sequence[RemoteStream]) -> RemoteStream | None:
    """The stream that an overlay lies over: that of the run it names; otherwise its own run's, or the newest."""
    found = [s for s in streams if s.name == overlay.info.over and s.kind != "overlay"]
    if run := overlay.info.over_run:
        return next((s for s in found if s.run.id == run), None)
    own = [s for s in found if s.run is overlay.run]
    live = [s for s in found if s.run.alive and s.kind == "image"]
    return (own or live[-1:] or found[-1:] or [None])[0]


def newest_overlays(subscriber: Subscriber, stream: RemoteStream, timeout: float = _PATIENCE,
                    own: float = 0.0) -> list[Frame]:
    """The newest frame of each overlay over a stream, in host memory, to be closed by the caller. Opens what is not
    open, and then waits `timeout` seconds at most for what has something to bring; `own`, if that is more, for overlays
    of the stream's own run."""
    begin = time.monotonic()
    waiting = overlays_of(stream, subscriber.streams)
    out: list[Frame] = []
    while True:
        waited = time.monotonic() - begin
        for overlay in list(waiting):
            _open(overlay)
            late = waited > (max(timeout, own) if overlay.run is stream.run else timeout)  # then an older one does
            done = late or not overlay.version or overlay.fault or not overlay.run.alive
            if (frame := overlay.read(0 if done else overlay.version - 1)) is not None:
                out.append(frame)
            if frame is not None or done:
                waiting.remove(overlay)
        if not waiting:
            return out
        time.sleep(0.002)
        subscriber.poll()


def release_overlays(subscriber: Subscriber, stream: RemoteStream) -> None:
    """Have nobody share what `newest_overlays` opened. Idempotent."""
    for overlay in overlays_of(stream, subscriber.streams):
        overlay.release()


def _open(overlay: RemoteStream) -> None:
    """Have a stream bring its frames to host memory. Idempotent and cheap."""
    overlay.open()
    for _ in overlay.info.transports:
        if overlay.sharing in _ON_HOST or overlay.fault or not overlay.run.alive:
            return
        overlay.refuse("overlays are read from host memory")


# -- the viewer -------------------------------------------------------------------------------------------------------


class _Open:
    """An overlay stream that is read because its image is shown."""

    def __init__(self, stream: RemoteStream) -> None:
        self.stream = stream
        self.seen = 0
        self.next = 0.0
        self.fault = ""
        """Why its newest frame cannot be drawn."""


def _shows_image(view: Any) -> TypeGuard[Any]:
    return view is not None and view.kind == "image"


class Overlays:
    """Reads the overlays of images that are shown, not more often than pictures are drawn; opens no others."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._open: dict[int, tuple[Slot, _Open]] = {}
        """By the stream's id()."""
        self._under: dict[str, RemoteStream] = {}
        """The image's stream by the entry's key."""

    def _match(self) -> None:
        """Find what belongs together: runs and streams come and go, and users show something else."""
        catalogue = self._catalogue
        streams = catalogue.subscriber.streams
        wanted: dict[int, tuple[Slot, RemoteStream]] = {}
        under: dict[str, RemoteStream] = {}
        for slot in catalogue.watched() if any(s.kind == "overlay" for s in streams) or self._open else ():
            if isinstance(slot.source, StreamSource) and slot.entry.kind == "image":
                under[slot.entry.key] = slot.source.stream
                if self._under.get(slot.entry.key) is not slot.source.stream and _shows_image(slot.view):
                    slot.view.content.layers.anew()
                found = overlays_of(slot.source.stream, streams)
                live = {s.name for s in found if s.run.alive}  # of a program that was started again, the new one
                wanted |= {id(s): (slot, s) for s in found if s.run.alive or s.name not in live}
        for key, (slot, opened) in list(self._open.items()):
            if key not in wanted or wanted[key][0] is not slot:
                del self._open[key]
                opened.stream.release()
                if slot in catalogue.slots.values() and _shows_image(slot.view):
                    slot.view.content.layers.drop(key)
        for key, (slot, stream) in wanted.items():
            if key not in self._open:
                self._open[key] = slot, _Open(stream)
        self._under = under

    def update(self, now: float) -> bool:
        """Open what is to be seen, and read what is new. True when there is something new for a picture."""
        self._match()
        news = False
        for slot, opened in list(self._open.values()):
            _open(opened.stream)
            layer = slot.view.content.layers.get(id(opened.stream)) if _shows_image(slot.view) else None
            if layer is not None:
                layer.ended = not opened.stream.run.alive
                layer.rate_hz = opened.stream.rate_hz or layer.rate_hz
            elif not opened.fault:  # another view than before, which has not been told
                opened.seen = 0
            if self._ready(slot, opened, now):
                news |= self._take(slot, opened, now)
        return news

    def has_news(self, now: float) -> bool:
        """Whether `update` would read something."""
        return any(self._ready(slot, opened, now) for slot, opened in self._open.values())

    def _ready(self, slot: Slot, opened: _Open, now: float) -> bool:
        if opened.stream.version <= opened.seen or now < opened.next:
            return False
        view = slot.view
        return _shows_image(view) and not view.empty and any(
            pane.screen.state.visible and pane.takes(now) and now >= pane.may_draw(now)
            for pane in self._catalogue.panes if pane.key == slot.entry.key)

    def _take(self, slot: Slot, opened: _Open, now: float) -> bool:
        stream, view = opened.stream, slot.view
        frame = stream.read(opened.seen)
        if frame is None:
            opened.next = now + 0.001
            if not stream.run.alive:  # what was announced last will not come any more
                opened.seen = stream.version
            return False
        begin = time.perf_counter()
        with frame, self._catalogue.guard(slot):
            version = frame.version
            content: Any = getattr(view, "content", None)
            try:
                taken = content.layers.take(id(stream), frame)
            except ViewerError as e:
                opened.seen, opened.fault = version, str(e)
                return True
            if not taken:
                return False
            opened.seen, opened.fault = version, ""
        cost = time.perf_counter() - begin
        opened.next = now + (2 * cost if cost > 0.005 else 0.0)
        return True

    def troubles(self, slot: Slot) -> list[str]:
        """What is wrong with the stream that an entry shows, or with what lies over it, in its publishers' words."""
        out = [slot.source.trouble] if isinstance(slot.source, StreamSource) and slot.entry.kind != "memory" else []
        if _shows_image(slot.view):
            out += slot.view.content.layers.troubles
        for _, opened in [o for o in self._open.values() if o[0] is slot]:
            out.append(opened.fault or opened.stream.fault or "")
        return [text for text in dict.fromkeys(out) if text]
