"""Which streams are parts of one scene, and which of them are shown alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.kinds import SCENES
from splatview_viewer.workspace.shards.stream import Alone, Part, ShardedStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_ipc.subscriber.remote_stream import RemoteStream

Key = tuple[str, str, int]
"""Group, name, number of ranks."""


class Shards:
    """The scenes in parts that are published now or were lately. Each is one object for as long as it has parts."""

    def __init__(self, run: str | None = None) -> None:
        self.run = run
        """The run's id, beginning of an id, name or process id that was asked for; None: any. A process that was asked
        for by its own is shown alone."""
        self._known: dict[Key, ShardedStream] = {}
        self._said: list[str] = []
        self.clashes: set[Key] = set()
        """Where two processes say that they are the same rank of the same training: nobody can tell which of the others
        goes with which, so none are put together."""

    @property
    def streams(self) -> list[ShardedStream]:
        return list(self._known.values())

    def update(self, streams: Sequence[RemoteStream]) -> list[Any]:
        """These streams with all parts of a scene replaced by one stream, in the place of the first of them."""
        run = self.run
        found: dict[Key, list[RemoteStream]] = {}
        for stream in streams:
            if (key := _key(stream, run)) is not None:
                found.setdefault(key, []).append(stream)
        self.clashes.clear()
        for key, members in found.items():
            known = self._known.get(key)
            parts = _chosen(members, [] if known is None else known.parts)
            if parts is None:
                self.clashes.add(key)
            elif known is not None:
                known.put(parts)
            else:
                group, name, world = key
                made = self._known[key] = ShardedStream(name, group, world)
                made.put(parts)
        for key in [k for k in self._known if k not in found or k in self.clashes]:
            self._known.pop(key).put([])
        out: list[Any] = []
        placed: set[Key] = set()
        for stream in streams:
            key = _key(stream, run)
            if key is None or key in self.clashes:
                out.append(stream)
            elif key not in placed:
                placed.add(key)
                out.append(self._known[key])
        return out

    def say(self, notices: list[str]) -> None:
        """Have it said where two trainings cannot be told apart."""
        said = [f"{name}: two trainings of {world} shards look like one. Set SPLATVIEW_GROUP to a word of its own for "
                f"each of them" for _, name, world in sorted(self.clashes)]
        if said != self._said:
            notices[:] = [text for text in notices if text not in self._said] + said
            self._said = said


def alone(stream: ShardedStream, part: Part) -> Alone:
    """One rank's part, to be shown beside the whole or instead of it."""
    return Alone(part, f"{stream.name} \u00b7 rank {part.rank} of {stream.world}")


def _key(stream: RemoteStream, run: str | None) -> Key | None:
    """None: it is a scene of its own, or is to be seen alone."""
    info = stream.info
    if info.shard is None or stream.kind not in SCENES or (run is not None and run != stream.run.name):
        return None
    return info.group, info.name, info.shard[1]


def _chosen(members: Sequence[RemoteStream], before: Sequence[Part]) -> list[tuple[int, RemoteStream]] | None:
    """The stream of each rank; None where two live ones are of the same rank. Of a rank that was started again it is
    the new one; and where all had ended before, nothing of then is left."""
    live: dict[int, RemoteStream] = {}
    for stream in members:
        assert stream.info.shard is not None
        if stream.run.alive:
            if stream.info.shard[0] in live:
                return None
            live[stream.info.shard[0]] = stream
    known = {id(part.stream) for part in before}
    again = bool(live) and not any(id(stream) in known for stream in live.values())
    ended: dict[int, RemoteStream] = {}
    if not again:
        for stream in members:
            assert stream.info.shard is not None
            rank = stream.info.shard[0]
            if not stream.run.alive and rank not in live and id(stream) in known:
                ended[rank] = stream
    if not live and not ended:  # found when it had ended already
        ended = {s.info.shard[0]: s for s in members if s.info.shard is not None}
    return sorted((live | ended).items())


def key_of(stream: Any) -> str:
    """By what its entry is known."""
    if isinstance(stream, ShardedStream):
        return f"shards {stream.group}/{stream.name}/{stream.world}"
    return f"{stream.run.id}/{stream.name}"


def title_of(stream: Any) -> str:
    """What a stream is called in the list."""
    if (title := getattr(stream, "title", "")):
        return str(title)
    shard = stream.info.shard
    return str(stream.name) if shard is None else f"{stream.name} \u00b7 rank {shard[0]} of {shard[1]}"


def group_of(stream: Any) -> str:
    """Return the words over the streams of a run in the list."""
    return f"{stream.run.name} \u00b7 {stream.run.pid}"


def belongs(run: Any, to: Any) -> bool:
    """Whether a process is this one, or one of those that train a scene in parts."""
    return run is to or (not hasattr(to, "folder") and run in to)
