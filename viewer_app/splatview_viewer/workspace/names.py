"""The stream that is meant by a name, or by none, and the errors when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.run_folder import other_runs, runtime_folder
from splatview_ipc.system.terminal import printable
from splatview_viewer.core.errors import LateError, NotFoundError, ViewerError
from splatview_viewer.kinds import about
from splatview_viewer.workspace.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.settings import Entry

SETTLE = 1.0
"""Seconds after which a run that was found has told its streams."""


def preferred_entry(entries: Iterable[Entry], name: str | None = None) -> Entry | None:
    """Return the entry that a name stands for, or without a name the one to show first.

    Live entries come before files, those before ended ones; among them the kinds of a
    lower rank first (Gaussians before others, memory and curves last), and of equals the
    newest, which is the last of `entries`.
    """

    def preference(entry: Entry) -> tuple[bool, bool, int]:
        return entry.alive, not entry.is_file, -about(entry.kind).rank

    candidates = [entry for entry in entries if name in (None, entry.name)]
    return max(reversed(candidates), key=preference, default=None)


def _preferred_stream(streams: Iterable[Any], name: str | None) -> Any:
    """Return the live stream that a name stands for, chosen as `preferred_entry` does."""
    candidates = [stream for stream in streams if name in (None, stream.name)]
    return min(
        reversed(candidates), key=lambda stream: about(stream.kind).rank, default=None
    )


class Finder:
    """Finds streams by name, for single pictures of them."""

    def __init__(self, subscriber: Subscriber, who: str) -> None:
        """`who` stands at the beginning of messages."""
        self._subscriber, self._who, self._shards = subscriber, who, Shards()
        self._since: dict[str, float] = {}
        """The time at which a run was first seen, by its id."""

    def find(
        self,
        name: str | None,
        run: str | None,
        now: float,
        settled: float,
        deadline: float,
    ) -> RemoteStream | None:
        """Return the stream that is meant by a name. `run`: a run's id, the beginning of one, its name or its process
        id; None: any.

        None: not yet. A run that has just started may tell its streams until `settled`; until `deadline` where none has
        any yet. Then raises NotFoundError that lists what there is; ViewerError where runs cannot be found.
        """
        there = [s for s in self.look(run, now) if s.run.alive]
        runs = self._runs(run)
        for r in runs:
            self._since.setdefault(r.id, now)
        found = _preferred_stream(
            [s for s in there if about(s.kind).shown and not s.info.over], name
        )
        told = bool(runs) and all(
            r.welcomed or r.refused or now > self._since[r.id] + SETTLE for r in runs
        )
        if found is not None and (told or now > settled):
            return found
        # A run without the stream may publish it any moment, one that is about to begin may take its time; no run at
        # all is known at once.
        beginning = bool(runs) and not any(r.streams for r in runs)
        if beginning:
            end = deadline
        elif not runs or name is None:
            end = settled
        else:
            end = min(settled + 1.0, deadline)
        if now > end or (runs and all(r.refused for r in runs)):
            raise self._nothing(name, run)
        return None

    def look(self, run: str | None, now: float) -> list[Any]:
        """Take in what happened, and return the streams, parts of one scene as one: they may come late. `run` as for
        `find`.
        """
        self._subscriber.poll()
        self._shards.run = run
        return self._shards.update(
            [s for s in self._subscriber.streams if _called(s.run, run)], now
        )

    def _runs(self, run: str | None) -> list[RemoteRun]:
        """Return the live ones, oldest first."""
        return [r for r in self._subscriber.runs if r.alive and _called(r, run)]

    def _nothing(self, name: str | None, run: str | None) -> ViewerError:
        who = self._who
        runs = self._runs(run)
        if self._subscriber.fault:
            return ViewerError(f"{who}: runs cannot be found: {self._subscriber.fault}")
        if not runs:
            return NotFoundError(
                f"{who}: there is no run {run!r}; {other_runs(runtime_folder(), run)}"
                if run is not None
                else f"{who}: no run is publishing. Start one (splatview.publish(tensor) in a training script, or splatview "
                f"demo){', or name a file' if who == 'shot' else ''}"
            )
        refused = [
            printable(f"{r.name} ({r.id}): {r.refused}") for r in runs if r.refused
        ]
        if refused:
            return NotFoundError(f"{who}: " + "; ".join(refused))
        listing = [
            f"{printable(s.name)} ({s.kind}, run {s.run.id})"
            for r in runs
            for s in r.streams.values()
        ]
        if name is not None and listing:
            return NotFoundError(
                f"{who}: there is no stream {name!r} that can be drawn; there are: "
                f"{', '.join(listing)}"
            )
        named = ", ".join(f"{printable(r.name)} ({r.id})" for r in runs)
        if not any(r.welcomed for r in runs):
            return LateError(
                f"{who}: {named} did not answer: its process is stopped, very busy or out of open files"
            )
        return NotFoundError(f"{who}: no stream is published yet by {named}")


def _called(run: RemoteRun, name: str | None) -> bool:
    return name is None or run.folder.description.is_called(name)


def why_nothing(stream: RemoteStream, who: str, timeout: float) -> ViewerError:
    """Return the error for a stream that brought no frame within `timeout` seconds."""
    if stream.fault:
        return ViewerError(
            f"{who}: stream {stream.name!r} cannot be read: {stream.fault}"
        )
    if not stream.run.alive:
        return NotFoundError(
            f"{who}: the run of stream {stream.name!r} ended before it could be read"
        )
    return LateError(
        f"{who}: stream {stream.name!r} brought no frame within {timeout:g} s. A trainer shares its data "
        "when it publishes next: is it still running?"
    )
