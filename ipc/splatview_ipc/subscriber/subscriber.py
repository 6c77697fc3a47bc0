"""The viewer's side: follows every run of this user, or one, and never waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_ipc.control import limits, mail
from splatview_ipc.control.errors import RuntimeFolderError, SharingError
from splatview_ipc.control.run_folder import list_runs, remove_stale, runtime_folder
from splatview_ipc.cuda import retiring
from splatview_ipc.subscriber.remote_run import RemoteRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from splatview_ipc.control.run_folder import RunFolder
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_SCAN_PERIOD_S = 0.25
"""Time between two scans for runs, which take a third of a millisecond."""
_WAIT_PERIOD_S = 0.005
_MAX_ENDED = 8
"""Number of ended runs whose last pictures are kept."""
_MAX_CLIENT = 40
"""Characters of a client's name."""


class Subscriber:
    """Follows every run of this user, or one."""

    def __init__(
        self,
        run: str | None = None,
        *,
        client: str = "viewer",
        transports: Collection[str] | Callable[[str, str], bool] | None = None,
        endpoint: Callable[[Path, str], str] = mail.endpoint,
    ) -> None:
        """Follow runs from the first `poll` on.

        Args:
            run: a run's id, the beginning of one, its name or its process id; None: all
                runs.
            client: the name of this process in the run's `status`.
            transports: those that this process can use: their names, or a function of a
                transport and a GPU's UUID ("" for CPU streams); by default `can_take`.
            endpoint: returns the ZeroMQ address of a socket in a run's folder.
        """
        if transports is None:
            self._can_take = can_take
        elif callable(transports):
            self._can_take = transports
        else:
            self._can_take = lambda transport, gpu: transport in transports
        self._run_name = run
        self._client = client[:_MAX_CLIENT]
        self._endpoint = endpoint
        self._runs: dict[str, RemoteRun] = {}
        self._next_scan = 0.0
        self.changes = 0
        """Number of changes of runs and streams, beside versions and rates."""
        self.fault: str | None = None
        """The reason why no run can be found, for users; None: they can."""

    @property
    def runs(self) -> list[RemoteRun]:
        """Live runs and those that ended lately, oldest first."""
        return list(self._runs.values())

    @property
    def streams(self) -> list[RemoteStream]:
        """The streams of all runs."""
        streams: list[RemoteStream] = []
        for run in self._runs.values():
            streams += run.streams.values()
        return streams

    def poll(self, now: float | None = None) -> bool:
        """Take in what happened. Never blocks.

        Returns True when a run, a stream or a version changed.
        """
        now = time.monotonic() if now is None else now
        has_changed = False
        for run in list(self._runs.values()):
            previous = run.changes
            has_changed |= run.poll(now)
            self.changes += run.changes - previous
        if now >= self._next_scan:
            self._next_scan = now + _SCAN_PERIOD_S
            if self._scan():
                self.changes += 1
                has_changed = True
        retiring.release_idle()
        return has_changed

    def wait_for_runs(self, timeout: float) -> None:
        """Poll until the streams of every live run are known, or the time is over.

        Args:
            timeout: seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.poll()
            is_complete = all(
                run.welcomed or run.refused or not run.alive for run in self.runs
            )
            if is_complete or time.monotonic() >= deadline:
                return
            time.sleep(_WAIT_PERIOD_S)

    def close(self) -> None:
        """Detach from all runs and release everything. Idempotent."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _scan(self) -> bool:
        """Look for runs that are new or have ended; return whether there are any."""
        try:
            root = runtime_folder()
        except RuntimeFolderError as error:
            self.fault = str(error)
            return False
        self.fault = None
        all_folders = list_runs(root)
        ids = {f.description.id for f in all_folders if self._is_followed(f)}
        folders = {}
        for folder in all_folders:
            description = folder.description
            if description.id in ids or description.parent_run in ids:
                folders[description.id] = folder
        # Oldest first: of too many, the newest ones are followed.
        new_ids = [run_id for run_id in folders if run_id not in self._runs]
        for run_id in new_ids[: max(0, len(folders) - limits.MAX_RUNS)]:
            del folders[run_id]
        new_ids = [run_id for run_id in new_ids if run_id in folders]
        for run_id in new_ids:
            self._runs[run_id] = RemoteRun(
                folders[run_id], self._client, self._can_take, self._endpoint
            )
        live = [run for run in self.runs if run.alive]
        dead = [r for r in live if r.id not in folders and not r.watch.alive()]
        for run in dead:
            run.end()
        remove_stale(root)
        self._forget_ended()
        return bool(new_ids or dead)

    def _is_followed(self, folder: RunFolder) -> bool:
        """Return whether to follow a run; a hidden one only by its whole id."""
        description = folder.description
        if description.hidden:
            return description.id == self._run_name
        return self._run_name is None or description.is_called(self._run_name)

    def _forget_ended(self) -> None:
        """Close the runs that ended first, if there are too many."""
        ended = [run for run in self.runs if not run.alive]
        ended.sort(key=lambda run: run.ended_at)
        for run in ended[:-_MAX_ENDED]:
            run.close()
            del self._runs[run.id]


def can_take(transport: str, gpu: str, draws_on: str | None = None) -> bool:
    """Return whether this process can read frames of a transport.

    Frames in GPU memory only if CUDA sees that GPU, or OpenGL draws on it. Makes no
    context.

    Args:
        transport: name of the transport.
        gpu: UUID of the GPU of the tensors; "" for the CPU.
        draws_on: UUID of the GPU that OpenGL draws on, which imports memory by itself:
            CUDA is not even looked for then.
    """
    if transport in ("ring", "host"):
        return True
    if transport != "torch-ipc" and gpu and gpu == draws_on:
        return True
    from splatview_ipc.cuda import driver

    try:
        return driver.find_device(gpu) is not None
    except SharingError:
        return False
