"""Pictures of streams and files that a caller names: the pipeline of all of them.

A file is opened or a stream found, its value is awaited, drawn complete by a `Still`,
and its pixels are handed to the caller.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.render_requests import RenderRequest
from splatview_viewer.app.still import Still, wait_until
from splatview_viewer.core.errors import LateError, ViewerError
from splatview_viewer.core.screen import MIN_SIZE
from splatview_viewer.kinds import kind_of
from splatview_viewer.recording.recording import Recording, streams_in
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.links import Feed, linked_to, open_linked
from splatview_viewer.workspace.names import SETTLE, Finder, why_nothing
from splatview_viewer.workspace.shards import ShardedStream
from splatview_viewer.workspace.sources import make_subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.core.view import Value

T = TypeVar("T")
if TYPE_CHECKING:
    Use = Callable[[Still, Value | None, Sequence[StreamFrame]], T | None]
    """Takes the pixels of a value that a still is to draw, with the frames over it;
    None: the value was overwritten meanwhile."""

_TIMEOUT_S = 10.0
"""Seconds for a stream's first frame."""
_COMMAND_OVERLAYS_S = 3.0
"""Seconds for which a command waits for overlays' frames."""
_NEWEST_S = 0.3
"""Seconds for the version that another run's stream is at; then an older one is drawn.
"""
_IDLE_S = 5.0
"""Seconds from the last request for a stream to its release."""
_MAX_OPEN = 4
"""Streams that stay open."""


class Named(NamedTuple):
    """The file or stream that a command draws."""

    file: Path | None
    """None: a stream."""
    run: str | None
    stream: str | None


def draw_named(named: Named, command: str, camera: str, use: Use[T]) -> T:
    """Return the result of `use` for a file, or for the newest frame of a stream.

    Args:
        named: the file or stream.
        command: the name of the command, with which messages begin.
        camera: the command's option for the camera.
        use: takes the pixels.

    Raises:
        ViewerError: there is nothing to draw, or it cannot be drawn.
    """
    with ExitStack() as stack:
        if named.file is None:
            stills = Stills(command, camera, named.run, overlays_s=_COMMAND_OVERLAYS_S)
            stack.callback(stills.close)
            request = RenderRequest(_TIMEOUT_S, named.run, named.stream)
            return stills.draw(request, use)
        if named.stream is not None or named.run is not None:
            raise ViewerError(
                f"{command}: a file was named, and --stream or --run as well; name one "
                "or "
                "the "
                "other"
            )
        value = _read_named(named.file, command)
        screen = OffscreenScreen(MIN_SIZE, MIN_SIZE)
        stack.callback(screen.close)
        still = Still(screen, kind_of(value), command, camera)
        stack.callback(still.close)
        result = use(still, value, ())
        # Only a frame can be overwritten meanwhile.
        assert result is not None
        return result


def _read_named(path: Path, command: str) -> Value:
    """Return what a file holds, or the newest snapshot of a recorded stream's folder.

    Raises ViewerError for what cannot be read, and for a folder with several streams.
    """
    stream_folders = streams_in(path)
    if not stream_folders:
        from splatview_viewer.kinds.files import open_file

        return open_file(path)
    if len(stream_folders) > 1:
        names = ", ".join(str(folder) for folder in stream_folders)
        raise ViewerError(
            f"{command}: {path} holds {len(stream_folders)} recorded streams; name the "
            f"folder of one: {names}"
        )
    recording = Recording.opened(stream_folders[0])
    return recording.scene(recording.snapshots[-1])


class _StreamKey(NamedTuple):
    run_id: str
    stream_index: int
    kind: str


@dataclass
class _OpenStream:
    """A stream that was drawn lately, and the still that draws it."""

    stream: RemoteStream
    still: Still
    feeds: dict[int, Feed[Still]] = field(default_factory=dict)
    """Readers of the streams over it of which every frame counts, by their `id`."""
    version: int = 0
    """The version that `still` shows; 0: none."""
    read_version: int = 0
    """The newest version of which the publisher's troubles are known."""
    last_use: float = 0.0


@dataclass(slots=True)
class _Attempt:
    """The end of waiting for a picture."""

    result: object = None
    """The result of `use`; None: the stream will bring nothing."""


class Stills:
    """Draws single pictures of streams, of which the last few stay open for the next."""

    def __init__(
        self,
        command: str,
        camera: str,
        run: str | None = None,
        *,
        gpu_uuid: str | None = None,
        overlays_s: float = 0.5,
    ) -> None:
        """Make a screen to draw on, and follow runs.

        Args:
            command: the name of the command, with which messages begin.
            camera: the name that messages give the camera.
            run: the only one that is followed; None if all are.
            gpu_uuid: as for `OffscreenScreen`.
            overlays_s: seconds to wait for overlays' frames; a trainer on a busy GPU
                answers late.

        Raises:
            ViewerError: there are no graphics.
            IpcError: runs cannot be found.
        """
        self.screen = OffscreenScreen(MIN_SIZE, MIN_SIZE, gpu_uuid=gpu_uuid)
        self._subscriber = make_subscriber(self.screen.ctx, run, client=command)
        self._finder = Finder(self._subscriber, command)
        self._command = command
        self._camera_name = camera
        self._overlays_s = overlays_s
        self._open: dict[_StreamKey, _OpenStream] = {}
        """The last one is at the end."""

    def draw(self, request: RenderRequest, use: Use[T]) -> T:
        """Return the result of `use` for the newest frame of the requested stream.

        Args:
            request: the stream, and how long to wait.
            use: gets the frame and those over it; None in place of a frame that the
                still shows already. Where it returns None, it is called again with the
                next one.

        Raises:
            NotFoundError: there is no such stream.
            LateError: it brings nothing in time.
            ViewerError: it cannot be drawn.
        """
        end = time.monotonic() + request.timeout
        stream = self._open_already(request) or self._find(request, end)
        run = stream.run
        loading_from = time.monotonic()
        opened = self._open_stream(stream)
        # The stream is waited for by a program that can draw it.
        end += time.monotonic() - loading_from

        def has_announced() -> bool | None:
            if len(run.streams) >= request.streams or not run.alive:
                return True
            self._subscriber.poll()
            return None

        wait_until(has_announced, end)
        newest_end = min(time.monotonic() + _NEWEST_S, end)
        newest = stream.version

        def attempt() -> _Attempt | None:
            version = request.after
            if not version:
                version = 1
                if time.monotonic() < newest_end:
                    version = newest
            result = self._attempt(opened, version, end, request, use)
            if result is not None:
                return _Attempt(result)
            if stream.fault or not run.alive:
                return _Attempt()
            # Parts of a sharded scene may come late.
            self._finder.poll(request.run, time.monotonic())
            return None

        outcome = wait_until(attempt, end)
        if outcome is None or outcome.result is None:
            raise self._why_nothing(stream, request)
        opened.last_use = time.monotonic()
        return outcome.result  # type: ignore[return-value]

    def _open_already(self, request: RenderRequest) -> RemoteStream | None:
        """Return the stream of a process that asks for its own, if it is open here.

        Nothing is looked for then, which takes 0.1 ms: of such a stream all is known,
        but for its frames.
        """
        for opened in self._open.values():
            stream = opened.stream
            run = stream.run
            is_meant = (run.id, stream.name) == (request.run, request.stream)
            if not is_meant or isinstance(stream, ShardedStream):
                continue
            has_announced = 0 < request.streams <= len(run.streams)
            if has_announced and run.alive and not stream.fault:
                return stream
        return None

    def _find(self, request: RenderRequest, end: float) -> RemoteStream:
        """Wait for the requested stream. Raises NotFoundError without one."""
        settled = min(time.monotonic() + SETTLE, end)
        is_announced = request.streams > 0
        if is_announced:
            settled = end

        def find() -> RemoteStream | None:
            now = time.monotonic()
            return self._finder.find(request.stream, request.run, now, settled, end)

        stream = wait_until(find, math.inf)
        assert stream is not None
        return stream

    def _open_stream(self, stream: RemoteStream) -> _OpenStream:
        """Return an open stream as the last one; release the oldest beyond _MAX_OPEN."""
        key = _StreamKey(stream.run.id, stream.info.index, stream.kind)
        opened = self._open.pop(key, None)
        if opened is None:
            still = Still(self.screen, stream.kind, self._command, self._camera_name)
            opened = _OpenStream(stream, still)
            still.read_links = partial(self._read_links, opened)
            stream.open()
            still.load()
        self._open[key] = opened
        while len(self._open) > _MAX_OPEN:
            self._release(next(iter(self._open)))
        return opened

    def _read_links(self, opened: _OpenStream) -> None:
        """Read the streams over one of which every frame counts, in order."""
        self._subscriber.poll()
        now = time.monotonic()
        for link, linked in linked_to(opened.stream, self._subscriber.streams):
            if not link.in_order:
                continue
            feed = opened.feeds.setdefault(id(linked), Feed(link, opened.still, linked))
            feed.tend(now)
            if linked.version > feed.last_version:
                feed.take(now)
        self._read_trouble(opened)

    def _read_trouble(self, opened: _OpenStream) -> None:
        """Look in the newest version of a stream for why no picture of it comes."""
        if not opened.stream.run.alive:
            opened.still.trouble = "the training has ended"
            return
        frame = opened.stream.read(after=opened.read_version)
        if frame is None:
            return
        with frame:
            opened.read_version = frame.version
            opened.still.trouble = str(frame.meta.get("trouble", ""))

    def _why_nothing(self, stream: RemoteStream, request: RenderRequest) -> ViewerError:
        """Return the error for a stream that brought no frame in time."""
        error = why_nothing(stream, self._command, request.timeout)
        if isinstance(error, LateError) and stream.version < request.after:
            return LateError(
                f"{error} (version {request.after} was waited for, {stream.version} is "
                "the newest)"
            )
        return error

    def _attempt(
        self,
        opened: _OpenStream,
        version: int,
        end: float,
        request: RenderRequest,
        use: Use[T],
    ) -> T | None:
        """Draw a version or a later one, and return the result of `use`.

        None while there is no such version, or if it was overwritten meanwhile.
        """
        stream = opened.stream
        frame = None
        drawn_version = opened.version
        if stream.live or drawn_version < max(version, stream.version, 1):
            frame = stream.read(after=max(version - 1, 0))
            if frame is None:
                return None
            drawn_version = frame.version
        opened.version = 0
        with ExitStack() as stack:
            if frame is not None:
                stack.enter_context(frame)
            overlays = self._overlays(stream, end, request.streams > 0)
            for overlay in overlays:
                stack.enter_context(overlay)
            try:
                result = use(opened.still, frame, overlays)
            except SharingError as e:
                if frame is None or not frame.on_gpu:
                    raise ViewerError(f"{self._command}: {e}") from e
                # The same data may come by another transport.
                stream.refuse(str(e))
                return None
        if result is not None:
            opened.version = drawn_version
        return result

    def _overlays(
        self, stream: RemoteStream, end: float, awaits_own: bool
    ) -> list[StreamFrame]:
        """Return the newest frames of the streams over one, which the caller closes.

        Args:
            awaits_own: the stream's process published some that are on their way; they
                are awaited until `end`.
        """
        soon = min(time.monotonic() + self._overlays_s, end)
        frames: list[StreamFrame] = []
        waiting = [
            linked
            for link, linked in linked_to(stream, self._subscriber.streams)
            if link.still
        ]

        def poll() -> bool | None:
            self._subscriber.poll()
            for linked in list(waiting):
                open_linked(linked)
                is_awaited = awaits_own and linked.run is stream.run
                limit = end if is_awaited else soon
                is_late = time.monotonic() > limit
                has_ended = bool(linked.fault) or not linked.run.alive
                # Where the newest version does not come, an older one is drawn.
                takes_any = is_late or not linked.version or has_ended
                last_version = 0
                if not takes_any:
                    last_version = linked.version - 1
                frame = linked.read(last_version)
                if frame is not None:
                    frames.append(frame)
                if frame is not None or takes_any:
                    waiting.remove(linked)
            return not waiting or None

        if waiting:
            wait_until(poll, math.inf)
        return frames

    def release_idle(self) -> bool:
        """Look for new runs, and release idle streams; return whether there were any."""
        self._subscriber.poll()
        now = time.monotonic()
        idle = []
        for key, opened in self._open.items():
            if now - opened.last_use > _IDLE_S or not opened.stream.run.alive:
                idle.append(key)
        for key in idle:
            self._release(key)
        return bool(idle)

    def _release(self, key: _StreamKey) -> None:
        opened = self._open.pop(key)
        opened.still.close()
        opened.stream.release()
        for _, linked in linked_to(opened.stream, self._subscriber.streams):
            linked.release()

    def close(self) -> None:
        for key in list(self._open):
            self._release(key)
        self._subscriber.close()
        self.screen.close()
