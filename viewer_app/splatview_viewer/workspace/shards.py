"""Scenes of which each process of a training publishes a part, read as one stream."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.kinds import about
from splatview_viewer.workspace.join_shards import join

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from splatview_ipc.control.frame import StreamFrame
    from splatview_ipc.control.messages import StreamInfo
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.scene.frames import JoinedFrame

GATHER_WAIT = 2.0
"""Seconds for which the first picture waits for ranks that are absent or bring nothing.
"""
RANK_WAIT = 0.1
"""Seconds for which a rank's new version waits for those of the others. All live ranks
publish at each step: one picture for each step is enough, and a rank that is stopped
does not hold up the others."""
_MARK_WAIT = 0.25
"""Seconds for which a version is awaited that a rank has counted, but not marked yet.
"""


class ShardedScene(NamedTuple):
    """The identity of a scene in parts, among all streams."""

    group: str
    name: str
    world: int
    """Number of ranks."""


@dataclass(frozen=True, slots=True)
class ReadShard:
    """A part of a scene as it was read last."""

    rank: int
    count: int
    """Number of Gaussians."""
    version: int


class _PartState(NamedTuple):
    """The facts of a part, beside its version, by which the whole has changed."""

    stream_id: int
    alive: bool
    is_left_out: bool


class Shard:
    """One rank's stream."""

    def __init__(self, rank: int, stream: RemoteStream) -> None:
        self.rank = rank
        self.stream = stream
        self.read_version = 0
        """The version that was read last."""
        self.counted_version = 0
        """The newest version that counts in the version of the whole."""
        self.skipped = False
        """True if it brought nothing for so long that the picture is without it."""
        self._awaited_since = 0.0
        """Time since which a frame has been awaited; 0: none is."""

    @property
    def alive(self) -> bool:
        return self.stream.run.alive

    @property
    def is_new(self) -> bool:
        """True if it has a version that does not count yet in that of the whole."""
        return self.stream.version > self.counted_version

    @property
    def state(self) -> _PartState:
        """The facts by which the whole changes with this part."""
        is_left_out = self.skipped and self.stream.opened
        return _PartState(id(self.stream), self.alive, is_left_out)

    def read(self, now: float) -> StreamFrame | None:
        """Return its newest frame, the last one again if there is no newer.

        None while a frame is to be awaited, and where the part is left out (`skipped`).
        """
        stream = self.stream
        # A rank may have come later than the others.
        stream.open()
        is_newer = stream.version > self.read_version
        if is_newer:
            frame = stream.read(self.read_version)
            if frame is not None:
                self._awaited_since = 0.0
                self.skipped = False
                return frame
            self._awaited_since = self._awaited_since or now
        is_marked_soon = (
            is_newer and self.alive and now <= self._awaited_since + _MARK_WAIT
        )
        if not is_marked_soon:
            frame = stream.read(0)
            if frame is not None:
                self.skipped = False
                return frame
            self._awaited_since = self._awaited_since or now
        is_late = now > self._awaited_since + GATHER_WAIT
        self.skipped = not self.alive or bool(stream.fault) or is_late
        return None


class ShardedStream:
    """A scene in parts, read as one stream and used like a `RemoteStream`.

    What the ranks have in common is that of the first rank that lives.
    """

    def __init__(self, name: str, group: str, world: int, now: float) -> None:
        """Make a stream without parts; `put` is to be called next, with at least one."""
        self.now = now
        """The time of the last turn of the loop."""
        self.name = name
        self.group = group
        self.world = world
        self.shards: list[Shard] = []
        """By rank; some may have ended."""
        self._lead_stream: RemoteStream | None = None
        self._last_read: tuple[ReadShard, ...] = ()
        self._gathers = True
        """True while the first version is awaited, so that the camera sees all of it.
        """
        self._gathers_since = now
        self._version = 0
        self._counted_state: tuple[_PartState, ...] = ()
        """The parts when a version was counted last."""
        self._new_since = 0.0
        """Time since which there is something new that was not counted; 0: nothing is.
        """

    def put(self, streams: Sequence[tuple[int, RemoteStream]]) -> None:
        """Replace its parts: streams by rank. None: what was read last stays."""
        known_shards = {id(shard.stream): shard for shard in self.shards}
        is_restart = bool(known_shards) and all(
            id(s) not in known_shards for _, s in streams
        )
        if is_restart:
            self._gathers = True
            self._gathers_since = self.now
        shards = []
        for rank, stream in streams:
            shards.append(known_shards.get(id(stream)) or Shard(rank, stream))
        self.shards = shards
        if shards:
            live = [shard for shard in shards if shard.alive]
            self._lead_stream = (live or shards)[0].stream

    @property
    def missing_ranks(self) -> str:
        """The ranks that are missing, for users; "" where none is."""
        ended = {shard.rank for shard in self.shards if not shard.alive}
        silent = {shard.rank for shard in self.shards if shard.skipped} - ended
        present = {shard.rank for shard in self.shards} - ended - silent
        absent = set(range(self.world)) - present - ended - silent
        is_complete = len(present) == self.world
        has_ended = not present and not silent and len(ended) == self.world
        if is_complete or has_ended:
            return ""
        reasons = {"ended": ended, "not answering": silent, "not found": absent}
        missing = [
            f"{ranks_of(ranks)} {reason}" for reason, ranks in reasons.items() if ranks
        ]
        return f"{len(present)} of {self.world} shards; {', '.join(missing)}"

    @property
    def notes(self) -> list[str]:
        """Lines for Details."""
        shards = self._last_read
        if not shards:
            return []
        oldest = min(shard.version for shard in shards)
        newest = max(shard.version for shard in shards)
        versions = f"versions {oldest:,} to {newest:,}"
        if oldest == newest:
            versions = f"version {oldest:,}"
        ranks = ranks_of([shard.rank for shard in shards])
        counts = ", ".join(f"{shard.count:,}" for shard in shards)
        return [f"shards {ranks}: {versions}", f"Gaussians by rank: {counts}"]

    # -- as a stream -------------------------------------------------------------------

    @property
    def _lead(self) -> RemoteStream:
        """The stream of the first rank that lives, or of the first one."""
        stream = self._lead_stream
        assert stream is not None, "a sharded stream has its parts from `put`"
        return stream

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
    def shape(self) -> tuple[int, ...]:
        shapes = [shard.stream.shape for shard in self.shards]
        if shapes and all(shapes):
            return (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return ()

    @property
    def device(self) -> str:
        return ", ".join(dict.fromkeys(shard.stream.device for shard in self.shards))

    @property
    def fault(self) -> str | None:
        """The reasons why no part can be read; those of some are trouble."""
        faults = []
        for shard in self.shards:
            if shard.stream.fault:
                faults.append(f"rank {shard.rank}: {shard.stream.fault}")
        if faults and len(faults) == len(self.shards):
            return "; ".join(faults[:3])
        return None

    @property
    def fallback(self) -> str:
        fallbacks = [shard.stream.fallback for shard in self.shards]
        return "; ".join(dict.fromkeys(filter(None, fallbacks)))

    def open(self) -> None:
        for shard in self.shards:
            shard.stream.open()

    def release(self) -> None:
        for shard in self.shards:
            shard.stream.release()
            shard.read_version = 0

    def tell_pace(self, hz: float, now: float) -> None:
        """Keep the pace of the ranks: fewer marks would be of steps further apart."""

    def refuse(self, reason: str) -> None:
        for shard in self.shards:
            if shard.stream.gpu:
                shard.stream.refuse(reason)

    @property
    def version(self) -> int:
        """The count of what there is to be seen. Never goes back.

        As a rule it is the version that all live ranks have published.
        """
        now = self.now
        shards = self.shards
        state = self._state()
        has_new_version = any(shard.is_new for shard in shards)
        if not shards or not (has_new_version or state != self._counted_state):
            return self._version
        is_gathering = self._gathers and len(shards) < self.world
        if is_gathering and now < self._gathers_since + GATHER_WAIT:
            return self._version
        self._new_since = self._new_since or now
        newest = max(shard.stream.version for shard in shards)
        if newest and self._may_count(state):
            for shard in shards:
                shard.counted_version = shard.stream.version
            self._counted_state = state
            self._new_since = 0.0
            self._gathers = False
            self._version = max(self._version + 1, newest)
        return self._version

    @property
    def changes(self) -> tuple[int, ...]:
        """Return numbers that differ once the stream, or a rank's run, has changed."""
        counts = [self.version]
        for shard in self.shards:
            counts += [shard.stream.changes, shard.stream.run.total_version]
        return tuple(counts)

    def _state(self) -> tuple[_PartState, ...]:
        return tuple(shard.state for shard in self.shards)

    def _may_count(self, state: tuple[_PartState, ...]) -> bool:
        """Return whether what is new makes a version now, and waits for no other rank."""
        if all(shard.is_new for shard in self.shards if shard.alive):
            return True
        if self.now >= self._new_since + RANK_WAIT:
            return True
        return state != self._counted_state and not self._gathers

    def read(self, after: int = 0) -> JoinedFrame | None:
        """Read the newest frames of all parts as one, of ended ones the last.

        As `RemoteStream.read`.
        """
        version = self.version
        if version <= after:
            return None
        frames = dict[Shard, "StreamFrame"]()
        with ExitStack() as stack:
            for shard in self.shards:
                frame = shard.read(self.now)
                if frame is not None:
                    stack.callback(frame.close)
                    frames[shard] = frame
                elif not shard.skipped:
                    return None
            if not frames:
                return None
            ranks = [shard.rank for shard in frames]
            joined = join([*frames.values()], ranks, version, self.missing_ranks)
            stack.pop_all()
        for shard, frame in frames.items():
            shard.read_version = frame.version
            # A version that counted before its frame was there is new once more.
            shard.counted_version = min(shard.counted_version, shard.read_version)
        versions = [frame.version for frame in frames.values()]
        read_shards = []
        for (rank, count), version in zip(joined.shards, versions, strict=True):
            read_shards.append(ReadShard(rank, count, version))
        self._last_read = tuple(read_shards)
        return joined


class Shards:
    """The scenes in parts that are published now or were lately.

    Each is one object for as long as it has parts.
    """

    def __init__(self) -> None:
        self.run: str | None = None
        """The run's id, beginning of an id, name or process id that was asked for;
        None: any. A process that was asked for by its own is shown alone."""
        self._scenes: dict[ShardedScene, ShardedStream] = {}
        self.clashes: set[ShardedScene] = set()
        """Trainings of which two processes publish the same rank: the other ranks
        cannot be told apart, so none are put together."""

    @property
    def streams(self) -> list[ShardedStream]:
        return list(self._scenes.values())

    def tick(self, now: float) -> None:
        """Set the time by which versions of ranks wait for each other.

        To be called at least once in each turn of the loop.
        """
        for sharded in self._scenes.values():
            sharded.now = now

    def update(self, streams: Sequence[RemoteStream], now: float) -> list[Any]:
        """Return the streams, with the parts of each scene replaced by one stream.

        It stands in the place of the first of them.
        """
        self.tick(now)
        members: dict[ShardedScene, list[RemoteStream]] = {}
        for stream in streams:
            scene = self._scene_of(stream)
            if scene is not None:
                members.setdefault(scene, []).append(stream)
        self.clashes.clear()
        for scene, scene_streams in members.items():
            self._update_scene(scene, scene_streams, now)
        for scene in list(self._scenes):
            if scene not in members or scene in self.clashes:
                self._scenes.pop(scene).put([])
        joined: dict[int, Any] = {}
        for stream in streams:
            scene = self._scene_of(stream)
            listed: Any = stream
            if scene is not None:
                listed = self._scenes.get(scene) or stream
            joined[id(listed)] = listed
        return list(joined.values())

    def _update_scene(
        self, scene: ShardedScene, streams: list[RemoteStream], now: float
    ) -> None:
        """Give a scene its parts; or note that two trainings clash."""
        sharded = self._scenes.get(scene)
        previous = set[int]()
        if sharded is not None:
            previous = {id(shard.stream) for shard in sharded.shards}
        live: dict[int, RemoteStream] = {}
        ended: dict[int, RemoteStream] = {}
        for stream in streams:
            if stream.info.shard is not None:
                rank, _ = stream.info.shard
                if stream.run.alive:
                    live[rank] = stream
                else:
                    ended[rank] = stream
        if len(live) < sum(stream.run.alive for stream in streams):
            self.clashes.add(scene)
            return
        if live:
            # Of a rank that was started again, the new one counts; none of an earlier
            # training is left.
            goes_on = any(id(stream) in previous for stream in live.values())
            ended = {
                rank: stream
                for rank, stream in ended.items()
                if goes_on and id(stream) in previous
            }
        if sharded is None:
            sharded = ShardedStream(scene.name, scene.group, scene.world, now)
            self._scenes[scene] = sharded
        sharded.put(sorted((ended | live).items()))

    def _scene_of(self, stream: RemoteStream) -> ShardedScene | None:
        """Return the scene that a stream is a part of; None if it is to be seen alone."""
        info = stream.info
        if info.shard is None or not about(stream.kind).sharded:
            return None
        if self.run not in (None, stream.run.name):
            return None
        _, world = info.shard
        return ShardedScene(info.group, info.name, world)


def streams_of(stream: Any) -> list[RemoteStream]:
    """Return the processes' streams of a stream."""
    if isinstance(stream, ShardedStream):
        return [shard.stream for shard in stream.shards]
    return [stream]


def runs_of(stream: Any) -> list[RemoteRun]:
    """Return the processes that publish a stream."""
    return [shard.run for shard in streams_of(stream)]


def key_of(stream: Any) -> str:
    """Return the key of a stream's entry."""
    if isinstance(stream, ShardedStream):
        return f"shards {stream.group}/{stream.name}/{stream.world}"
    return f"{stream.run.id}/{stream.name}"


def title_of(stream: Any) -> str:
    """Return the name of a stream's entry."""
    if isinstance(stream, ShardedStream):
        if stream.world > 1:
            return f"{stream.name} \u00b7 {stream.world} shards"
        return stream.name
    shard = stream.info.shard
    if shard is None:
        return str(stream.name)
    rank, world = shard
    return f"{stream.name} \u00b7 rank {rank} of {world}"


def notes_of(stream: Any) -> list[str]:
    """Return lines for Details on how a stream is put together."""
    if not isinstance(stream, ShardedStream):
        return []
    return stream.notes


def ranks_of(ranks: Iterable[int]) -> str:
    """Return ranks in words, such as "rank 2" or "ranks 0, 1, 5"."""
    unique = sorted(set(ranks))
    plural = "s" if len(unique) > 1 else ""
    return f"rank{plural} {', '.join(map(str, unique))}"
