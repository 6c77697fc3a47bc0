"""A scene in parts as one stream: what `ipc.RemoteStream` and `ipc.RemoteRun` are to the rest of the viewer."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.scene.frames import JoinedFrame, JoinedTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from splatview_ipc.control.frame import Frame
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


class Part:
    """One rank's stream. It is open as long as anybody wants it: who shows the whole, or the rank alone."""

    def __init__(self, rank: int, stream: RemoteStream) -> None:
        self.rank = rank
        self.stream = stream
        self.taken = 0
        """The version that was read last."""
        self.skipped = False
        """Whether it brought nothing for so long that the picture is without it."""
        self._since = 0.0
        """Since when nothing comes though something is to; 0: that is not so."""
        self._wanted: set[object] = set()

    @property
    def alive(self) -> bool:
        return self.stream.run.alive

    def open(self, who: object) -> None:
        self._wanted.add(who)
        self.stream.open()

    def release(self, who: object) -> None:
        self._wanted.discard(who)
        if not self._wanted:
            self.stream.release()

    def read(self, now: float) -> Frame | None:
        """Its newest frame, the last one again if there is no newer; None while one is to be awaited, and where it is
        left out (`skipped`)."""
        stream = self.stream
        if self._wanted:  # somebody else may have given it back
            stream.open()
        newer = stream.version > self.taken
        if newer and (frame := stream.read(self.taken)) is not None:
            self._since, self.skipped = 0.0, False
            return frame
        if newer:
            self._since = self._since or now
        if not newer or not self.alive or now > self._since + _MARK:
            frame = stream.read(0)
            if frame is not None:
                self.skipped = False
                return frame
            self._since = self._since or now
        self.skipped = not self.alive or bool(stream.fault) or now > self._since + GATHER
        return None


class Alone:
    """One rank's stream, for whoever shows it by itself beside the whole: `ipc.RemoteStream` in all but this."""

    def __init__(self, part: Part, title: str) -> None:
        self.part = part
        self.title = title

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part.stream, name)

    def open(self) -> None:
        self.part.open(self)

    def release(self) -> None:
        self.part.release(self)


class ShardedRun:
    """The processes that train one scene."""

    refused: str | None = None

    def __init__(self, stream: ShardedStream) -> None:
        self._stream = stream

    @property
    def runs(self) -> list[RemoteRun]:
        """Those whose parts are shown, by rank."""
        return [part.stream.run for part in self._stream.parts]

    def __contains__(self, run: object) -> bool:
        return any(each is run for each in self.runs)

    @property
    def _live(self) -> list[RemoteRun]:
        return [run for run in self.runs if run.alive]

    @property
    def _first(self) -> RemoteRun:
        return self._stream.lead.run

    @property
    def id(self) -> str:
        return self._first.id

    @property
    def name(self) -> str:
        return self._first.name

    @property
    def pid(self) -> int:
        return self._first.pid

    @property
    def alive(self) -> bool:
        return bool(self._live)

    @property
    def ended_at(self) -> float:
        return max((run.ended_at for run in self.runs), default=0.0)

    @property
    def paused(self) -> bool:
        return any(run.paused for run in self._live)

    @property
    def waits(self) -> int:
        return max((run.waits for run in self._live), default=0)

    @property
    def streams(self) -> Mapping[int, RemoteStream]:
        """All that these processes publish."""
        return dict(enumerate(s for run in self.runs for s in run.streams.values()))

    def set_paused(self, paused: bool) -> None:
        """All of them: what trains together would wait for the one that is paused."""
        for run in self._live:
            run.set_paused(paused)

    def step(self) -> None:
        for run in self._live:
            run.step()


class ShardedStream:
    """A scene of which each process of a training publishes a part."""

    kind = "gaussians"
    order = None

    def __init__(self, name: str, group: str, world: int) -> None:
        """It has parts once `put` was called, with at least one at first."""
        self.name = name
        self.group = group
        self.world = world
        self.parts: list[Part] = []
        """Those there are, by rank; some may have ended."""
        self._last: list[RemoteStream] = []
        """The parts there were last: what is said of a scene of which there are none any more."""
        self.run = ShardedRun(self)
        self.shown: tuple[tuple[int, int, int], ...] = ()
        """Of what was read last: ranks, their numbers of Gaussians and versions."""
        self._opened = False
        self._gathers = True
        """Whether what is shown first is being awaited, so that all of it is framed."""
        self._began = time.monotonic()
        self._version = 0
        self._counted: tuple[tuple[Any, ...], ...] = ()
        """The parts' versions when a version was counted last, those of their frames once it was read."""
        self._new_since = 0.0
        """Since when there is something new that was not counted; 0: there is nothing."""

    # -- parts -----------------------------------------------------------------------------------------------------

    def put(self, parts: Sequence[tuple[int, RemoteStream]]) -> None:
        """These are its parts now, by rank."""
        known = {id(part.stream): part for part in self.parts}
        before, self.parts = self.parts, [known.pop(id(s), None) or self._begun(rank, s) for rank, s in parts]
        for part in before:
            if id(part.stream) in known:
                part.release(self)
        if before and len(known) == len(before):  # the training was started again
            self._gathers, self._began = True, time.monotonic()
        if self.parts:
            self._last = [part.stream for part in self.parts]

    def _begun(self, rank: int, stream: RemoteStream) -> Part:
        part = Part(rank, stream)
        if self._opened:
            part.open(self)
        return part

    @property
    def title(self) -> str:
        return f"{self.name} \u00b7 {self.world} shards" if self.world > 1 else self.name

    @property
    def trouble(self) -> str:
        """Which parts are missing, for people; "" where none is."""
        ranks = {part.rank: part for part in self.parts}
        return missing(self.world, [r for r, p in ranks.items() if p.alive and not p.skipped],
                       [r for r, p in ranks.items() if not p.alive], [r for r, p in ranks.items() if p.skipped])

    @property
    def notes(self) -> list[str]:
        """What is said in Details."""
        if not self.shown:
            return []
        versions = [version for *_, version in self.shown]
        low, high = min(versions), max(versions)
        told = f"version {low:,}" if low == high else f"versions {low:,} to {high:,}"
        counts = ", ".join(f"{count:,}" for _, count, _ in self.shown)
        return [f"shards {ranks_of([r for r, *_ in self.shown])}: {told}", f"Gaussians by rank: {counts}"]

    # -- as a stream -------------------------------------------------------------------------------------------------

    @property
    def lead(self) -> RemoteStream:
        """The stream of the first rank that lives, or else the first one."""
        return next((part.stream for part in self.parts if part.alive), self._last[0])

    @property
    def info(self) -> StreamInfo:
        return self.lead.info

    @property
    def shape(self) -> tuple[int, ...]:
        shapes = [part.stream.shape for part in self.parts]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes and all(shapes) else ()

    @property
    def dtype(self) -> str:
        return self.lead.dtype

    @property
    def device(self) -> str:
        return ", ".join(dict.fromkeys(part.stream.device for part in self.parts))

    @property
    def gpu(self) -> str:
        return self.lead.gpu

    @property
    def live(self) -> bool:
        return any(part.stream.live for part in self.parts)

    @property
    def sharing(self) -> str:
        return self.lead.sharing

    @property
    def rate_hz(self) -> float:
        return max((part.stream.rate_hz for part in self.parts), default=0.0)

    @property
    def fault(self) -> str | None:
        """Why no part can be read; what is wrong with some is said as trouble."""
        faults = [f"rank {part.rank}: {part.stream.fault}" for part in self.parts if part.stream.fault]
        return "; ".join(faults[:3]) if faults and len(faults) == len(self.parts) else None

    @property
    def fallback(self) -> str:
        found: dict[str, list[int]] = {}
        for part in self.parts:
            if part.stream.fallback:
                found.setdefault(part.stream.fallback, []).append(part.rank)
        return "; ".join(f"{text} ({ranks_of(ranks)})" for text, ranks in found.items())

    @property
    def opened(self) -> bool:
        return any(part.stream.opened for part in self.parts)

    def open(self) -> None:
        self._opened = True
        for part in self.parts:
            part.open(self)

    def release(self) -> None:
        self._opened = False
        for part in self.parts:
            part.release(self)
            part.taken = 0

    def refuse(self, reason: str) -> None:
        for part in self.parts:
            if part.stream.gpu:
                part.stream.refuse(reason)

    @property
    def version(self) -> int:
        """Counts what there is to be seen: as a rule a step that all live ranks have published, and then it is their
        version. Never goes back."""
        now = time.monotonic()
        parts = self.parts
        versions = tuple((id(p.stream), p.stream.version, p.alive, p.skipped and p.stream.opened) for p in parts)
        if not parts or versions == self._counted:
            return self._version
        if self._gathers and len(parts) < self.world and now < self._began + GATHER:
            return self._version
        before: dict[int, list[Any]] = {key: rest for key, *rest in self._counted}
        others = any(before.get(key, [])[1:] != rest for key, _, *rest in versions)
        late = [key for key, v, alive, _ in versions if alive and v <= (before.get(key) or [0])[0]]
        self._new_since = self._new_since or now
        newest = max(v for _, v, *_ in versions)
        if newest and ((others and not self._gathers) or not late or now >= self._new_since + TOGETHER):
            self._counted, self._new_since, self._gathers = versions, 0.0, False
            self._version = max(self._version + 1, newest)
        return self._version

    def read(self, after: int = 0) -> JoinedFrame | None:
        """As `RemoteStream.read`: the newest frames of all parts as one, those of ended ones as they were last."""
        version = self.version
        if version <= after:
            return None
        now = time.monotonic()
        with ExitStack() as stack:
            found: list[tuple[Part, Frame]] = []
            for part in self.parts:
                frame = part.read(now)
                if frame is not None:
                    stack.callback(frame.close)
                    found.append((part, frame))
                elif not part.skipped:
                    return None
            if not found:
                return None
            joined = join([frame for _, frame in found], [part.rank for part, _ in found], version, self.trouble)
            stack.pop_all()
        for part, frame in found:
            part.taken = frame.version
        # A version may be counted before its frame is there: then it is new once more.
        taken = {id(part.stream): part.taken for part, _ in found}
        self._counted = tuple((key, min(version, taken.get(key, version)), *rest)
                              for key, version, *rest in self._counted)
        self.shown = tuple((part.rank, count, frame.version) for (part, frame), (_, count) in
                           zip(found, joined.shards, strict=True))
        return joined


def ranks_of(ranks: Iterable[int]) -> str:
    """Ranks in words, such as "rank 2" or "ranks 0 to 3, 5"."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    texts = [f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a} to {b}" for a, b in spans]
    one = len(spans) == 1 and spans[0][0] == spans[0][1]
    return f"rank{'' if one else 's'} {', '.join(texts)}"


def missing(world: int, there: Iterable[int], ended: Iterable[int], silent: Iterable[int]) -> str:
    """What is said where not all ranks are there: ended ones, those that bring nothing, and those not found."""
    there, ended, silent = set(there), set(ended), set(silent)
    if len(there) == world or (not there and not silent and len(ended) == world):
        return ""
    silent -= ended
    absent = set(range(world)) - there - ended - silent
    parts = [f"{ranks_of(ranks)} {word}" for ranks, word in (
        (ended, "ended"), (silent, "not answering"), (absent, "not found")) if ranks]
    return f"{len(there)} of {world} shards; {', '.join(parts)}"


_ALIKE = ("color", "activated")
"""Metadata that says what the numbers mean."""


def join(frames: Sequence[Frame], ranks: Sequence[int], version: int, trouble: str = "") -> JoinedFrame:
    """Return one frame of kind gaussians from those of several ranks, at least one; it holds them until it is closed.
    `trouble`: what to say over the picture beside what the ranks say.

    Raises ViewerError where they do not fit together. On a GPU if all of them are; which one, the first part decides.
    """
    first, meta = frames[0], dict(frames[0].meta)
    for frame, rank in zip(frames, ranks, strict=True):
        for name in _ALIKE:
            if frame.meta.get(name) != meta.get(name):
                raise ViewerError(f"shards: rank {ranks[0]} publishes {name} {meta.get(name)!r}, rank {rank} "
                                  f"{frame.meta.get(name)!r}: they cannot be shown as one scene")
    meta["sh_degree"] = max(int(frame.meta.get("sh_degree", 0)) for frame in frames)
    troubles = [trouble, *(f"rank {rank}: {text}" for frame, rank in zip(frames, ranks, strict=True)
                           if isinstance(text := frame.meta.get("trouble"), str) and text)]
    meta.pop("trouble", None)
    if any(troubles):
        meta["trouble"] = "; ".join(filter(None, troubles))
    if len({"shN" in frame.tensors for frame in frames}) > 1:
        raise ViewerError("shards: some ranks publish spherical harmonics beyond degree 0 and some do not: they cannot "
                          "be shown as one scene")
    tensors: dict[str, Any] = {name: tensor if name == "background" else JoinedTensor.of(
        [frame.tensors[name] for frame in frames]) for name, tensor in first.tensors.items()}
    joined = JoinedFrame(
        kind=first.kind, version=version, time_ns=max(frame.time_ns for frame in frames), meta=meta,
        tensors=tensors, intact=lambda: all([frame.intact() for frame in frames]), parts=frames,
        shards=tuple((rank, frame.tensors["means"].shape[0]) for rank, frame in zip(ranks, frames, strict=True)))

    def release() -> None:
        joined.kept.clear()
        for frame in frames:
            frame.close()

    joined.release = release
    return joined
