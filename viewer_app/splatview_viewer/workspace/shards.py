"""Scenes of which each process of a training publishes a part: found among the streams, and read as one stream."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds import about
from splatview_viewer.scene.frames import JoinedFrame, JoinedTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.messages import StreamInfo
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream

GATHER = 2.0
"""Seconds for which the first picture waits for ranks that are not there, or bring nothing."""
TOGETHER = 0.1
"""Seconds for which a rank's new version waits for those of the others. All live ranks publish at each step: one
picture for each step is enough, and a rank that is stopped does not hold up the others."""
_MARK = 0.25
"""Seconds for which a version is awaited that a rank has counted, but has not marked yet."""
_ALIKE = ("color", "activated")
"""Metadata by which the numbers are to be understood."""
_Key = tuple[str, str, int]
"""Group, name, number of ranks."""


class Shard:
    """One rank's stream."""

    def __init__(self, rank: int, stream: RemoteStream) -> None:
        self.rank = rank
        self.stream = stream
        self.taken = 0
        """The version that was read last."""
        self.counted = 0
        """The newest version that counts in the whole's."""
        self.skipped = False
        """True if it brought nothing for so long that the picture is without it."""
        self._since = 0.0
        """Time since which a frame has been awaited; 0: none is."""

    @property
    def alive(self) -> bool:
        return self.stream.run.alive

    def read(self, now: float) -> StreamFrame | None:
        """Return its newest frame, the last one again if there is no newer; None while one is to be awaited, and where
        it is left out (`skipped`).
        """
        stream = self.stream
        stream.open()  # it may have come later than the others
        newer = stream.version > self.taken
        if newer and (frame := stream.read(self.taken)) is not None:
            self._since = 0.0
            self.skipped = False
            return frame
        if newer:
            self._since = self._since or now
        if not newer or not self.alive or now > self._since + _MARK:
            frame = stream.read(0)
            if frame is not None:
                self.skipped = False
                return frame
            self._since = self._since or now
        self.skipped = (
            not self.alive or bool(stream.fault) or now > self._since + GATHER
        )
        return None


class ShardedStream:
    """A scene in parts, read as one stream and used like a `RemoteStream`.

    What the ranks have in common is that of the first rank that lives.
    """

    def __init__(self, name: str, group: str, world: int, now: float) -> None:
        """Make a stream without parts; `put` is to be called next, with at least one."""
        self.now = now
        """The time of the last turn."""
        self.name = name
        self.group = group
        self.world = world
        self.parts: list[Shard] = []
        """By rank; some may have ended."""
        self._first: RemoteStream | None = None
        self.shown: tuple[tuple[int, int, int], ...] = ()
        """Ranks, their numbers of Gaussians and versions, as they were read last."""
        self._gathers = True
        self._began = now
        """True while the first version is awaited, so that all of it is framed; and since when."""
        self._version = 0
        self._state: tuple[tuple[Any, ...], ...] = ()
        """Which parts there were, lived and were left out when a version was counted last."""
        self._new_since = 0.0
        """Time since which there is something new that was not counted; 0: there is nothing."""

    @property
    def run(self) -> RemoteRun:
        return self._lead.run

    @property
    def info(self) -> StreamInfo:
        return self._lead.info

    @property
    def kind(self) -> str:
        return self._lead.kind

    @property
    def gpu(self) -> str:
        return self._lead.gpu

    @property
    def live(self) -> bool:
        return self._lead.live

    @property
    def sharing(self) -> str:
        return self._lead.sharing

    @property
    def rate_hz(self) -> float:
        return self._lead.rate_hz

    @property
    def _lead(self) -> RemoteStream:
        """The stream of the first rank that lives, or of the first one, whose facts stand for all ranks."""
        assert self._first is not None, "put() gives a sharded stream its parts first"
        return self._first

    def put(self, parts: Sequence[tuple[int, RemoteStream]]) -> None:
        """Replace its parts: streams by rank. None: what was read last stays."""
        known = {id(part.stream): part for part in self.parts}
        if known and not any(
            id(stream) in known for _, stream in parts
        ):  # the training was started again
            self._gathers = True
            self._began = self.now
        self.parts = [
            known.get(id(stream)) or Shard(rank, stream) for rank, stream in parts
        ]
        if parts:
            self._first = next(
                (stream for _, stream in parts if stream.run.alive), parts[0][1]
            )

    @property
    def trouble(self) -> str:
        """The ranks that are missing, for people; "" where none is."""
        ended = {part.rank for part in self.parts if not part.alive}
        silent = {part.rank for part in self.parts if part.skipped} - ended
        there = {part.rank for part in self.parts} - ended - silent
        absent = set(range(self.world)) - there - ended - silent
        if len(there) == self.world or (
            not there and not silent and len(ended) == self.world
        ):
            return ""
        words = [
            f"{ranks_of(ranks)} {word}"
            for ranks, word in (
                (ended, "ended"),
                (silent, "not answering"),
                (absent, "not found"),
            )
            if ranks
        ]
        return f"{len(there)} of {self.world} shards; {', '.join(words)}"

    @property
    def notes(self) -> list[str]:
        """Lines for Details."""
        if not self.shown:
            return []
        ranks, _, versions = zip(*self.shown, strict=True)
        low = min(versions)
        high = max(versions)
        told = f"version {low:,}" if low == high else f"versions {low:,} to {high:,}"
        counts = ", ".join(f"{count:,}" for _, count, _ in self.shown)
        return [f"shards {ranks_of(ranks)}: {told}", f"Gaussians by rank: {counts}"]

    # -- as a stream -------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        shapes = [part.stream.shape for part in self.parts]
        if shapes and all(shapes):
            return (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return ()

    @property
    def device(self) -> str:
        return ", ".join(dict.fromkeys(part.stream.device for part in self.parts))

    @property
    def fault(self) -> str | None:
        """The reasons why no part can be read; those of some are trouble."""
        faults = [
            f"rank {part.rank}: {part.stream.fault}"
            for part in self.parts
            if part.stream.fault
        ]
        if faults and len(faults) == len(self.parts):
            return "; ".join(faults[:3])
        return None

    @property
    def fallback(self) -> str:
        return "; ".join(
            dict.fromkeys(
                part.stream.fallback for part in self.parts if part.stream.fallback
            )
        )

    def open(self) -> None:
        for part in self.parts:
            part.stream.open()

    def release(self) -> None:
        for part in self.parts:
            part.stream.release()
            part.taken = 0

    def refuse(self, reason: str) -> None:
        for part in self.parts:
            if part.stream.gpu:
                part.stream.refuse(reason)

    @property
    def version(self) -> int:
        """The count of what there is to be seen: as a rule a step that all live ranks have published, and then it is
        their version. Never goes back.
        """
        now = self.now
        parts = self.parts
        state = tuple(
            (id(part.stream), part.alive, part.skipped and part.stream.opened)
            for part in parts
        )
        new = [part for part in parts if part.stream.version > part.counted]
        if not parts or not (new or state != self._state):
            return self._version
        if self._gathers and len(parts) < self.world and now < self._began + GATHER:
            return self._version
        self._new_since = self._new_since or now
        newest = max(part.stream.version for part in parts)
        complete = all(part in new for part in parts if part.alive)
        if newest and (
            complete
            or now >= self._new_since + TOGETHER
            or (state != self._state and not self._gathers)
        ):
            for part in parts:
                part.counted = part.stream.version
            self._state = state
            self._new_since = 0.0
            self._gathers = False
            self._version = max(self._version + 1, newest)
        return self._version

    def read(self, after: int = 0) -> JoinedFrame | None:
        """Read the newest frames of all parts as one, of ended ones the last; as `RemoteStream.read`."""
        version = self.version
        if version <= after:
            return None
        frames = dict[Shard, "StreamFrame"]()
        with ExitStack() as stack:
            for part in self.parts:
                frame = part.read(self.now)
                if frame is not None:
                    stack.callback(frame.close)
                    frames[part] = frame
                elif not part.skipped:
                    return None
            if not frames:
                return None
            joined = join(
                [*frames.values()],
                [part.rank for part in frames],
                version,
                self.trouble,
            )
            stack.pop_all()
        for part, frame in frames.items():
            part.taken = frame.version
            part.counted = min(
                part.counted, part.taken
            )  # counted before its frame was there: it is new once more
        self.shown = tuple(
            (rank, count, frame.version)
            for (rank, count), frame in zip(joined.shards, frames.values(), strict=True)
        )
        return joined


class Shards:
    """The scenes in parts that are published now or were lately. Each is one object for as long as it has parts."""

    def __init__(self) -> None:
        self.run: str | None = None
        """The run's id, beginning of an id, name or process id that was asked for; None: any. A process that was asked
        for by its own is shown alone."""
        self._known: dict[_Key, ShardedStream] = {}
        self.clashes: set[_Key] = set()
        """Trainings of which two processes publish the same rank: the other ranks cannot be told apart, so none are put
        together."""

    @property
    def streams(self) -> list[ShardedStream]:
        return list(self._known.values())

    def turn(self, now: float) -> None:
        """To be called at least once in each turn of the loop: versions of ranks wait for each other for a while."""
        for whole in self.streams:
            whole.now = now

    def update(self, streams: Sequence[RemoteStream], now: float) -> list[Any]:
        """Return these streams with all parts of a scene replaced by one stream, in the place of the first of them."""
        self.turn(now)
        found: dict[_Key, list[RemoteStream]] = {}
        for stream in streams:
            key = self._key(stream)
            if key is not None:
                found.setdefault(key, []).append(stream)
        self.clashes.clear()
        for key, members in found.items():
            whole = self._known.get(key)
            if whole is not None:
                before = {id(part.stream) for part in whole.parts}
            else:
                before = set()
            ranks = [
                (stream.info.shard[0], stream)
                for stream in members
                if stream.info.shard is not None
            ]
            live = {rank: stream for rank, stream in ranks if stream.run.alive}
            if len(live) < sum(stream.run.alive for stream in members):
                self.clashes.add(key)
                continue
            ended = {rank: stream for rank, stream in ranks if not stream.run.alive}
            if live:  # of a rank that was started again it is the new one; none of an earlier training is left
                goes_on = before & {id(stream) for stream in live.values()}
                ended = {
                    rank: stream
                    for rank, stream in ended.items()
                    if goes_on and id(stream) in before
                }
            if whole is None:
                group, name, world = key
                whole = ShardedStream(name, group, world, now)
                self._known[key] = whole
            whole.put(sorted((ended | live).items()))
        for key in [k for k in self._known if k not in found or k in self.clashes]:
            self._known.pop(key).put([])
        out = [self._known.get(self._key(stream), stream) for stream in streams]  # type: ignore[arg-type]
        return list({id(stream): stream for stream in out}.values())

    def _key(self, stream: RemoteStream) -> _Key | None:
        """None: it is a scene of its own, or is to be seen alone."""
        info = stream.info
        if (
            info.shard is None
            or not about(stream.kind).sharded
            or self.run not in (None, stream.run.name)
        ):
            return None
        return info.group, info.name, info.shard[1]


def streams_of(stream: Any) -> list[RemoteStream]:
    """Return the processes' streams of a stream."""
    if isinstance(stream, ShardedStream):
        return [part.stream for part in stream.parts]
    return [stream]


def runs_of(stream: Any) -> list[RemoteRun]:
    """Return the processes that publish a stream."""
    return [each.run for each in streams_of(stream)]


def key_of(stream: Any) -> str:
    """Return the key of the entry."""
    if isinstance(stream, ShardedStream):
        return f"shards {stream.group}/{stream.name}/{stream.world}"
    return f"{stream.run.id}/{stream.name}"


def title_of(stream: Any) -> str:
    """Return the name of the entry."""
    if isinstance(stream, ShardedStream):
        if stream.world > 1:
            return f"{stream.name} \u00b7 {stream.world} shards"
        return stream.name
    shard = stream.info.shard
    if shard is None:
        return str(stream.name)
    return f"{stream.name} \u00b7 rank {shard[0]} of {shard[1]}"


def notes_of(stream: Any) -> list[str]:
    """Return lines for Details on how a stream is put together."""
    return stream.notes if isinstance(stream, ShardedStream) else []


def ranks_of(ranks: Iterable[int]) -> str:
    """Return ranks in words, such as "rank 2" or "ranks 0, 1, 5"."""
    found = sorted(set(ranks))
    return f"rank{'s' * (len(found) > 1)} {', '.join(map(str, found))}"


def join(
    frames: Sequence[StreamFrame], ranks: Sequence[int], version: int, trouble: str = ""
) -> JoinedFrame:
    """Return one frame of kind gaussians from those of several ranks, at least one; it holds them until it is closed.
    `trouble`: what to say over the picture beside what the ranks say.

    Raises ViewerError where they do not fit together. On a GPU if all of them are; which one, the first part decides.
    """
    first = frames[0]
    meta = dict(frames[0].meta)
    for frame, rank in zip(frames, ranks, strict=True):
        for name in _ALIKE:
            if frame.meta.get(name) != meta.get(name):
                raise ViewerError(
                    f"shards: rank {ranks[0]} publishes {name} {meta.get(name)!r}, rank {rank} "
                    f"{frame.meta.get(name)!r}: they cannot be shown as one scene"
                )
    meta["sh_degree"] = max(int(frame.meta.get("sh_degree", 0)) for frame in frames)
    troubles = [
        trouble,
        *(
            f"rank {rank}: {text}"
            for frame, rank in zip(frames, ranks, strict=True)
            if isinstance(text := frame.meta.get("trouble"), str) and text
        ),
    ]
    meta.pop("trouble", None)
    if any(troubles):
        meta["trouble"] = "; ".join(filter(None, troubles))
    if len({"shN" in frame.tensors for frame in frames}) > 1:
        raise ViewerError(
            "shards: some ranks publish spherical harmonics beyond degree 0 and some do not: they cannot "
            "be shown as one scene"
        )
    if len({"filter_3D" in frame.tensors for frame in frames}) > 1:
        raise ViewerError(
            "shards: some ranks publish a filter_3D and some do not: they cannot be shown as one scene"
        )
    tensors: dict[str, Any] = {
        name: tensor
        if name == "background"
        else JoinedTensor.of([frame.tensors[name] for frame in frames])
        for name, tensor in first.tensors.items()
    }
    joined = JoinedFrame(
        kind=first.kind,
        version=version,
        time_ns=max(frame.time_ns for frame in frames),
        meta=meta,
        tensors=tensors,
        intact=lambda: all([frame.intact() for frame in frames]),
        parts=frames,
        shards=tuple(
            (rank, frame.tensors["means"].shape[0])
            for rank, frame in zip(ranks, frames, strict=True)
        ),
    )

    def release() -> None:
        joined.kept.clear()
        for frame in frames:
            frame.close()

    joined.release = release
    return joined
