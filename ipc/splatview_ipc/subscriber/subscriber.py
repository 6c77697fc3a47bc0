"""The viewer's side: follows every run of this user, or one, and never waits for any of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_ipc.control import limits
from splatview_ipc.control.errors import RuntimeFolderError, SharingError
from splatview_ipc.control.mail import Mailroom
from splatview_ipc.control.run_folder import list_runs, remove_stale, runtime_folder
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.remote_stream import RemoteStream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from splatview_ipc.control.run_folder import RunFolder

__all__ = ["RemoteRun", "RemoteStream", "Subscriber"]

_SCAN_PERIOD = 0.25
_SCAN_LATEST = 1.0
"""Seconds between two looks for runs, and the most while new versions come all the time: a look takes a third of a
millisecond, and whoever waits for a version comes first."""
_KEEP_ENDED = 8
"""Ended runs whose last pictures are kept."""


class Subscriber:
    """Follows every run of this user, or one."""

    def __init__(self, run: str | None = None, *, client: str = "viewer",
                 ways: Collection[str] | Callable[[str, str], bool] | None = None):
        """`run`: a run's id, the beginning of one, its name or its process id; None: all runs.

        `client` is how the run's `status` calls this process. `ways`: which of `ipc.ways.WAYS` this process can take:
        their names, or a function of a way and a GPU's UUID ("" for CPU streams); by default `can_take`.
        """
        self._can_take = can_take if ways is None else ways if callable(ways) else _only(ways)
        self._wanted = run
        self._client = client[:40]
        self._mailroom = Mailroom()
        self._runs: dict[str, RemoteRun] = {}
        self._next_scan = 0.0
        self._tidied = False
        """Whether what dead programs left has been removed since this began to look."""
        self._seen: dict[tuple[str, int], int] = {}
        self.fault: str | None = None
        """Why runs cannot be found at all, for people."""

    @property
    def runs(self) -> list[RemoteRun]:
        """Live runs and those that ended lately, oldest first."""
        return list(self._runs.values())

    @property
    def streams(self) -> list[RemoteStream]:
        """The streams of all runs."""
        return [s for run in self._runs.values() for s in run.streams.values()]

    def poll(self) -> bool:
        """Take in what happened. Never blocks. True when a run, a stream or a version changed."""
        now = time.monotonic()
        changed = self._look(now)
        if now >= self._next_scan and (not changed or now >= self._next_scan + _SCAN_LATEST - _SCAN_PERIOD):
            self._next_scan = now + _SCAN_PERIOD
            if self._scan():
                changed = True
                self._look(now)
        return changed

    def _look(self, now: float) -> bool:
        """Take in what the known runs did."""
        changed = False
        for run in self._runs.values():
            changed |= run._poll(now)
            for index, stream in run.streams.items():
                version = stream.version
                if self._seen.get((run.id, index)) != version:
                    self._seen[run.id, index] = version
                    changed = True
                stream._measure()
        return changed

    def wait_for_runs(self, timeout: float) -> None:
        """Poll until every live run has told its streams, or `timeout` seconds have passed."""
        end = time.monotonic() + timeout
        while True:
            self.poll()
            if all(r.welcomed or r.refused or not r.alive for r in self.runs) or time.monotonic() >= end:
                return
            time.sleep(0.005)

    def close(self) -> None:
        """Say goodbye everywhere and give everything back. Idempotent."""
        for run in self._runs.values():
            run._close()
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
        changed = False
        found = {f.description.id: f for f in self._choose([f for f in list_runs(root) if self._wants(f)])}
        for run_id, folder in found.items():
            known = self._runs.get(run_id)
            if known is not None and known.alive:
                known.watch.renew()
                continue
            if known is not None:  # its folder was away, and we did not look while it moved from one lock to the next
                self._forget(known)
            self._runs[run_id] = RemoteRun(folder, self._mailroom, self._client, self._can_take)
            changed = True
        gone = [r for r in self._runs.values() if r.alive and r.id not in found and not r.watch.alive()]
        for run in gone:
            run._end()
            changed = True
        if gone or not self._tidied:
            self._tidied = True
            remove_stale(root)
        ended = sorted((r for r in self._runs.values() if not r.alive), key=lambda r: r.ended_at)
        for run in ended[: max(0, len(ended) - _KEEP_ENDED)]:
            self._forget(run)
        return changed

    def _choose(self, folders: list[RunFolder]) -> list[RunFolder]:
        """Those that are followed, of runs from the oldest to the newest: what is known already, and the newest."""
        spare = len(folders) - limits.MAX_RUNS
        if spare <= 0:
            return folders
        new = [f for f in folders if f.description.id not in self._runs]
        left_out = {f.description.id for f in new[:spare]}
        return [f for f in folders if f.description.id not in left_out]

    def _forget(self, run: RemoteRun) -> None:
        run._close()
        del self._runs[run.id]
        self._seen = {k: v for k, v in self._seen.items() if k[0] != run.id}

    def _wants(self, folder: RunFolder) -> bool:
        d, w = folder.description, self._wanted
        if d.hidden:
            return d.id == w
        return w is None or d.is_called(w)


def can_take(way: str, gpu: str, draws_on: str | None = None) -> bool:
    """Whether this process can read frames of a way: in GPU memory only where CUDA sees that GPU or OpenGL draws on it.

    `draws_on` is the UUID of the GPU that OpenGL draws on, which imports memory by itself: CUDA is not even looked for
    then. Makes no context.
    """
    if way in ("ring", "host") or (gpu and gpu == draws_on):
        return True
    from splatview_ipc.cuda import driver

    try:
        return driver.device_of(gpu) is not None
    except SharingError:
        return False


def _only(names: Collection[str]) -> Callable[[str, str], bool]:
    return lambda way, gpu: way in names
