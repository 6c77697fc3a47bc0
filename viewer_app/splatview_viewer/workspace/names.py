"""The entry or stream that a name stands for, or none, and the errors without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.missing_runs import explain_missing_run
from splatview_ipc.control.run_folder import runtime_folder
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
"""Seconds after which a run that was found has announced its streams."""


def preferred_entry(entries: Iterable[Entry], name: str | None = None) -> Entry | None:
    """Return the entry that a name stands for, or without a name the one to show first.

    Live entries come before files, those before ended ones; among them the kinds of a
    lower rank first (Gaussians before others, memory and curves last), and of equals
    the newest, which is the last of `entries`.
    """

    def preference(entry: Entry) -> tuple[bool, bool, int]:
        return entry.alive, not entry.is_file, -about(entry.kind).rank

    candidates = [entry for entry in entries if name in (None, entry.name)]
    return max(reversed(candidates), key=preference, default=None)


def _preferred_stream(streams: Iterable[Any], name: str | None) -> Any:
    """Return the live stream that a name stands for, chosen as `preferred_entry` does."""

    def rank(stream: Any) -> int:
        return about(stream.kind).rank

    candidates = [stream for stream in streams if name in (None, stream.name)]
    return min(reversed(candidates), key=rank, default=None)


class Finder:
    """Finds streams by name, for single pictures of them."""

    def __init__(self, subscriber: Subscriber, command: str) -> None:
        """Start without streams; messages begin with the command's name."""
        self._subscriber = subscriber
        self._command = command
        self._shards = Shards()
        self._first_seen: dict[str, float] = {}
        """The time at which a run was first seen, by its id."""

    def find(
        self,
        name: str | None,
        run: str | None,
        now: float,
        settled: float,
        deadline: float,
    ) -> RemoteStream | None:
        """Return the stream that a name stands for; None: not yet.

        Args:
            name: the name of the stream; None: the preferred one.
            run: a run's id, the beginning of one, its name or its process id; None:
                any.
            now: the present time, `time.monotonic()`.
            settled: until then a run that has just started may announce its streams.
            deadline: until then it may where none has announced any yet.

        Raises:
            NotFoundError: there is no such stream; lists those that there are.
            ViewerError: runs cannot be found.
        """
        live = [stream for stream in self.poll(run, now) if stream.run.alive]
        runs = self._live_runs(run)
        for live_run in runs:
            self._first_seen.setdefault(live_run.id, now)
        candidates = [s for s in live if about(s.kind).has_view and not s.info.over]
        stream = _preferred_stream(candidates, name)
        if stream is not None and (now > settled or self._have_announced(runs, now)):
            return stream
        all_refused = bool(runs) and all(live_run.refused for live_run in runs)
        if all_refused or now > _end_of_search(runs, name, settled, deadline):
            raise self._not_found(name, run)
        return None

    def poll(self, run: str | None, now: float) -> list[Any]:
        """Return the streams now, parts of one scene as one stream.

        `run` as for `find`.

        To be called again while a frame is awaited: parts may come late.
        """
        self._subscriber.poll()
        self._shards.run = run
        streams = [s for s in self._subscriber.streams if _is_called(s.run, run)]
        return self._shards.update(streams, now)

    def _live_runs(self, name: str | None) -> list[RemoteRun]:
        """Return the live runs of a name, oldest first."""
        return [r for r in self._subscriber.runs if r.alive and _is_called(r, name)]

    def _have_announced(self, runs: list[RemoteRun], now: float) -> bool:
        """Return whether all runs have announced their streams, as far as they will."""
        if not runs:
            return False
        return all(
            run.welcomed or run.refused or now > self._first_seen[run.id] + SETTLE
            for run in runs
        )

    def _not_found(self, name: str | None, run: str | None) -> ViewerError:
        """Return the error that tells what there is instead."""
        command = self._command
        runs = self._live_runs(run)
        if self._subscriber.fault:
            return ViewerError(
                f"{command}: runs cannot be found: {self._subscriber.fault}"
            )
        if not runs:
            return self._no_run(run)
        refused = [
            printable(f"{r.name} ({r.id}): {r.refused}") for r in runs if r.refused
        ]
        if refused:
            return NotFoundError(f"{command}: " + "; ".join(refused))
        listing = []
        for live_run in runs:
            for stream in live_run.streams.values():
                if about(stream.kind).of_run:
                    continue
                title = f"{printable(stream.name)} ({stream.kind}, run {live_run.id})"
                listing.append(title)
        if name is not None and listing:
            return NotFoundError(
                f"{command}: there is no stream {name!r} that can be drawn; there are: "
                f"{', '.join(listing)}"
            )
        titles = ", ".join(f"{printable(r.name)} ({r.id})" for r in runs)
        if not any(r.welcomed for r in runs):
            return LateError(
                f"{command}: {titles} did not answer: its process is stopped, very "
                "busy "
                "or out of open files"
            )
        return NotFoundError(f"{command}: no stream is published yet by {titles}")

    def _no_run(self, run: str | None) -> NotFoundError:
        command = self._command
        if run is not None:
            explanation = explain_missing_run(runtime_folder(), run)
            return NotFoundError(f"{command}: there is no run {run!r}; {explanation}")
        or_file = ""
        if command == "shot":
            or_file = ", or name a file"
        return NotFoundError(
            f"{command}: no run is publishing. Start one (splatview.publish(tensor) in "
            f"a training script, or splatview demo){or_file}"
        )


def _end_of_search(
    runs: list[RemoteRun], name: str | None, settled: float, deadline: float
) -> float:
    """Return the time until which a stream that is not there may still come.

    A run without the stream may publish it any moment, and one that is about to begin
    may take its time. That there is no run at all is known at once.
    """
    if runs and not any(run.streams for run in runs):
        return deadline
    if not runs or name is None:
        return settled
    return min(settled + 1.0, deadline)


def _is_called(run: RemoteRun, name: str | None) -> bool:
    return name is None or run.folder.description.is_called(name)


def why_nothing(stream: RemoteStream, command: str, timeout: float) -> ViewerError:
    """Return the error for a stream that brought no frame within `timeout` seconds."""
    if stream.fault:
        return ViewerError(
            f"{command}: stream {stream.name!r} cannot be read: {stream.fault}"
        )
    if not stream.run.alive:
        return NotFoundError(
            f"{command}: the run of stream {stream.name!r} ended before it could be "
            "read"
        )
    return LateError(
        f"{command}: stream {stream.name!r} brought no frame within {timeout:g} s. A "
        "trainer "
        "shares its data when it publishes next: is it still running?"
    )
