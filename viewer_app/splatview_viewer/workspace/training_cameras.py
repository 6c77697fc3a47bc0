"""The cameras of runs beside the scenes that are trained with them: whose are open when, and what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.kinds.cameras.content import CamerasContent
from splatview_viewer.workspace.shards.grouping import belongs
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.kinds.gaussians.frustums import Frustums
    from splatview_viewer.shell.pane import Pane
    from splatview_viewer.workspace.catalogue import Catalogue, Slot

_ON_HOST = ("ring", "host")
"""The ways that bring photographs."""


class _Part:
    """A stream of photographs, or of which camera is trained with."""

    def __init__(self, stream: RemoteStream) -> None:
        self.stream = stream
        self.seen = 0
        self.content: CamerasContent | None = None


class TrainingCameras:
    """Gives the views of scenes the cameras of their runs, and these their photographs."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.slots: list[Slot] = []
        """Cameras that are open because they are seen over what somebody looks at."""
        self._catalogue = catalogue
        self._parts: dict[int, _Part] = {}
        """By the stream's id()."""
        self._given = False
        """Whether some view was given cameras."""

    def of(self, slot: Slot | None) -> Slot | None:
        """The cameras of the run whose Gaussians an entry shows."""
        if slot is None or slot.entry.kind != "gaussians" or not isinstance(slot.source, StreamSource):
            return None
        run = slot.source.stream.run
        return next((s for s in self._catalogue.slots.values() if s.entry.kind == "cameras"
                     and isinstance(s.source, StreamSource) and belongs(s.source.stream.run, run)), None)

    def seen_by(self, pane: Pane, slot: Slot) -> bool:
        """Whether a pane shows these cameras over a scene."""
        return slot in self.slots and self.of(self._catalogue.shown(pane)) is slot

    def update(self, now: float) -> None:
        """Have what is seen brought, and hand out what came."""
        catalogue = self._catalogue
        slots = [slot for slot in catalogue.slots.values() if slot.entry.kind == "cameras"]
        if not (slots or self.slots or self._given or self._parts):
            return
        found = [beside for pane in catalogue.panes if (beside := self.of(catalogue.shown(pane))) is not None]
        before, self.slots = self.slots, list(dict.fromkeys(found))
        for slot in self.slots:
            if slot not in before:
                slot.source.open()
        for slot in before:
            if slot not in self.slots:
                catalogue.let_go(slot)
        watched = catalogue.watched()
        self._match([slot for slot in slots if slot in watched])
        for part in self._parts.values():
            self._read(part, now)
        self._give(watched)

    def _match(self, slots: list[Slot]) -> None:
        """Open the parts of these cameras, and release others."""
        wanted: dict[int, tuple[RemoteStream, CamerasContent | None]] = {}
        for slot in slots:
            if not isinstance(slot.source, StreamSource):
                continue
            base, content = slot.source.stream, getattr(slot.view, "content", None)
            for stream in base.run.streams.values():
                if stream.kind == "cameras" and stream.info.over == base.name:
                    wanted[id(stream)] = stream, content if isinstance(content, CamerasContent) else None
        for key, part in list(self._parts.items()):
            if key not in wanted:
                del self._parts[key]
                part.stream.release()
        for key, (stream, content) in wanted.items():
            part = self._parts.setdefault(key, _Part(stream))
            if content is not part.content:
                part.content, part.seen = content, 0
            stream.open()

    def _read(self, part: _Part, now: float) -> None:
        stream, content = part.stream, part.content
        if content is None or content.closed:
            return
        if stream.version > part.seen and (frame := stream.read(part.seen)) is not None:
            with frame:
                version = frame.version
                if "current" in frame.tensors:
                    number = int(frame.tensors["current"].array[0])  # type: ignore[union-attr]
                    if frame.intact():
                        content.say_current(number)
                        part.seen = version
                elif "photos" not in frame.tensors or content.take_photos(frame):
                    part.seen = version
        if stream.sharing in _ON_HOST and stream.shape == ():
            for camera, side in content.photos.requests(now):
                stream.request_photos(camera, side)

    def _give(self, watched: list[Slot]) -> None:
        """Have the views of scenes draw the cameras of their runs."""
        self._given = False
        for slot in self._catalogue.slots.values():
            if slot.entry.kind != "gaussians":
                continue
            beside = self.of(slot) if slot in watched else None
            content = None if beside is None else getattr(beside.view, "content", None)
            if not isinstance(content, CamerasContent) or content.closed:
                content = None
            for view in slot.views.values():
                tool: Frustums = view.tools["frustums"]  # type: ignore[attr-defined]
                tool.use(content)
            self._given |= content is not None
