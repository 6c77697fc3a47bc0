"""The viewer's side: follows every run of this user, or one, and never waits for any of them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from splatview_ipc.control import limits, mail
from splatview_ipc.control.errors import RuntimeFolderError, SharingError
from splatview_ipc.control.run_folder import list_runs, remove_stale, runtime_folder
from splatview_ipc.subscriber.remote_run import RemoteRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from splatview_ipc.subscriber.remote_stream import RemoteStream

_SCAN_PERIOD_S = 0.25
"""Time between two scans for runs, which take a third of a millisecond."""
_KEEP_ENDED = 8
"""Number of ended runs whose last pictures are kept."""


class Subscriber:
    """Follows every run of this user, or one."""

    def __init__(
        self,
        run: str | None = None,
        *,
        client: str = "viewer",
        transports: Collection[str] | Callable[[str, str], bool] | None = None,
        endpoint: Callable[[Path, str], str] = mail.endpoint,
    ):
        """`run`: a run's id, the beginning of one, its name or its process id; None: all runs.

        `client` is the name of this process in the run's `status`. `transports`: those that this process can use: their
        names, or a function of a transport and a GPU's UUID ("" for CPU streams); by default `can_take`. `endpoint`:
        the ZeroMQ address of a socket in a run's folder.
        """
        if transports is None:
            self._can_take = can_take
        elif callable(transports):
            self._can_take = transports
        else:
            self._can_take = lambda transport, gpu: transport in transports
        self._wanted = run
        self._client = client[:40]
        self._endpoint = endpoint
        self._runs: dict[str, RemoteRun] = {}
        self._next_scan = 0.0
        self.fault: str | None = None
        """The reason why no run can be found, for users; None: they can."""

    @property
    def runs(self) -> list[RemoteRun]:
        """Live runs and those that ended lately, oldest first."""
        return list(self._runs.values())

    @property
    def streams(self) -> list[RemoteStream]:
        """The streams of all runs."""
        return [s for run in self._runs.values() for s in run.streams.values()]

    def poll(self, now: float | None = None) -> bool:
        """Take in what happened. Never blocks. Returns True when a run, a stream or a version changed."""
        now = time.monotonic() if now is None else now
        changed = any([run.poll(now) for run in self.runs])
        if now >= self._next_scan:
            self._next_scan = now + _SCAN_PERIOD_S
            changed |= self._scan()
        retiring = sys.modules.get("splatview_ipc.cuda.retiring")
        if retiring is not None:
            retiring.turn()
        return changed

    def wait_for_runs(self, timeout: float) -> None:
        """Poll until the streams of every live run are known, or `timeout` seconds have passed."""
        end = time.monotonic() + timeout
        while True:
            self.poll()
            if (
                all(r.welcomed or r.refused or not r.alive for r in self.runs)
                or time.monotonic() >= end
            ):
                return
            time.sleep(0.005)

    def close(self) -> None:
        """Detach from all runs and give everything back. Idempotent."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _scan(self) -> bool:
        try:
            root = runtime_folder()
        except RuntimeFolderError as e:
            self.fault = str(e)
            return False
        self.fault = None
        wanted = self._wanted
        found = {
            f.description.id: f
            for f in list_runs(root)
            if (
                f.description.id == wanted
                if f.description.hidden
                else wanted is None or f.description.is_called(wanted)
            )
        }
        new = [run_id for run_id in found if run_id not in self._runs]  # oldest first
        for run_id in new[: max(0, len(found) - limits.MAX_RUNS)]:
            del found[run_id]
        new = [run_id for run_id in new if run_id in found]
        for run_id in new:
            self._runs[run_id] = RemoteRun(
                found[run_id], self._client, self._can_take, self._endpoint
            )
        gone = [
            r
            for r in self.runs
            if r.alive and r.id not in found and not r.watch.alive()
        ]
        for run in gone:
            run.end()
        remove_stale(root)
        ended = sorted((r for r in self.runs if not r.alive), key=lambda r: r.ended_at)
        for run in ended[:-_KEEP_ENDED]:
            run.close()
            del self._runs[run.id]
        return bool(new or gone)


def can_take(transport: str, gpu: str, draws_on: str | None = None) -> bool:
    """Return whether this process can read frames of a transport: in GPU memory only where CUDA sees that GPU or OpenGL
    draws on it.

    `draws_on` is the UUID of the GPU that OpenGL draws on, which imports memory by itself: CUDA is not even looked for
    then. Makes no context.
    """
    if transport in ("ring", "host") or (
        transport != "torch-ipc" and gpu and gpu == draws_on
    ):
        return True
    from splatview_ipc.cuda import driver

    try:
        return driver.device_of(gpu) is not None
    except SharingError:
        return False
