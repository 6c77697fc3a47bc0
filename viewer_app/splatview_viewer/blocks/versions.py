"""Packed versions of a scene in host memory, for all pages that draw it by themselves.

A page's connection requests a packing in its own thread. The thread that draws begins
with it, since it alone may read the scene, and a worker packs (`version_packer`). Pages
that want the same share it.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from splatview_viewer.blocks.packing_request import (
    Packing,
    PackingForm,
    PackingTerms,
    VersionFacts,
)
from splatview_viewer.blocks.version_packer import VersionPacker
from splatview_viewer.core.jobs import JobQueue
from splatview_viewer.core.selection import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.blocks.packing_request import GpuTime, SceneToPack
    from splatview_viewer.core.jobs import Job
    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera

MOST_GAUSSIANS = 6_000_000
"""Gaussians that a page is asked to hold."""
MOST_PACKINGS = 8
"""Packings of a scene that are held at once: each page on a line of its own pace may be
in the middle of another one."""
MOST_BYTES = 768 << 20
"""Bytes of all of them, where they are more than one."""
_MOST_GROWTH = 4
"""Factor by which a scene may have grown since a packing was requested. Else it holds too
little of it, and pages had better plan anew."""

_NEAR_SHARE = 0.9
"""Of the Gaussians that are asked for, which will do where they are packed already."""

_log = logging.getLogger("splatview")
_version_numbers = count(1)


@functools.cache
def _queue() -> JobQueue:
    """Return the queue in which all scenes are packed, one after the other."""
    return JobQueue("pack")


class PackedVersions:
    """The packings of one scene, of its newest version and of those still being sent."""

    def __init__(self, selection: Selection = EVERYTHING) -> None:
        """Start without a version.

        selection: the Gaussians that are packed.
        """
        self._selection = selection
        self._drawn_share = 1.0
        """Of all Gaussians, in the last version that was packed."""
        self._lock = threading.Lock()
        self._newest: VersionFacts | None = None
        self._cameras: tuple[Camera, ...] = ()
        self._packings: list[Packing] = []
        self._sendings: dict[object, bool] = {}
        """By reader, whether it is in the middle of a version."""
        self._packer = VersionPacker(selection, self._note_drawn)
        self._fault = ""
        """Why a packing failed last, which is told once."""
        self._is_closed = False
        self.gpu_times: deque[GpuTime] = deque()
        """What a GPU took for each packing, to be taken out."""
        self.terms = PackingTerms()

    # -- any thread --------------------------------------------------------------------

    @property
    def newest(self) -> VersionFacts | None:
        """The newest version; None before the first, and after the last."""
        return self._newest

    @property
    def is_wanted(self) -> bool:
        """True while a packing is to be begun with."""
        return any(not packing.is_begun for packing in self._packings)

    @property
    def awaits_first(self) -> bool:
        """True while a reader that has nothing yet waits for a packing."""
        return any(each.is_first and not each.is_begun for each in self._packings)

    @property
    def is_awaited(self) -> bool:
        """True while a newer version would be packed soon.

        While all readers are in the middle of one, or no packing begins, those that come
        now would be old by then.
        """
        if self.terms.is_held and not self.awaits_first:
            return False
        sendings = list(self._sendings.values())
        return not sendings or not all(sendings)

    def note_sending(self, reader: object, *, is_amid: bool) -> None:
        """Note whether a reader is in the middle of a version."""
        with self._lock:
            self._sendings[reader] = is_amid

    def forget_reader(self, reader: object) -> None:
        """Await nothing for a reader any more. Idempotent."""
        with self._lock:
            self._sendings.pop(reader, None)

    @property
    def has_readers(self) -> bool:
        """True while there is a reader, whether it is in the middle of a version or not."""
        return bool(self._sendings)

    @property
    def held_bytes(self) -> int:
        """Bytes of all packings that are held, or about to be."""
        return sum(packing.bytes for packing in self._packings)

    @property
    def is_reading(self) -> bool:
        """True while the newest version has to stay as it is."""
        return any(packing.is_reading for packing in self._packings)

    def request(
        self,
        form: PackingForm,
        version_number: int | None,
        listener: Callable[[], object],
        newer_than: int = 0,
    ) -> Packing | None:
        """Have a version packed, unless it is, and return the packing.

        Who asks for the newest version may get one that was it at `terms.fresh_from_s`.
        The thread that draws has to turn for that. Give it back by `release`.

        Args:
            form: of the packing.
            version_number: of the version; None: the newest one.
            listener: called once the packing is done or has failed, from any thread.
            newer_than: the version that the reader has; 0: none.

        Returns:
            None if there is no such version any more.
        """
        with self._lock:
            newest = self._newest
            if newest is None or self._is_closed:
                return None
            packing = self._find(form, newest, version_number, newer_than)
            if packing is None:
                if version_number not in (None, newest.version_number):
                    return None
                packing = Packing(newest, form, is_for_newest=version_number is None)
                self._packings.append(packing)
            packing.users += 1
            packing.is_first |= newer_than == 0
            packing.listeners.append(listener)
        return packing

    def _find(
        self,
        form: PackingForm,
        newest: VersionFacts,
        version_number: int | None,
        newer_than: int,
    ) -> Packing | None:
        """Return a packing that brings what is requested; None where there is none."""
        for packing in reversed(self._packings):
            if packing.has_failed or packing.form.parts != form.parts:
                continue
            wanted_number = version_number or newest.version_number
            is_it = packing.version_facts.version_number == wanted_number
            if version_number is None and packing.is_for_newest:
                is_fresh = packing.begun_s >= self.terms.fresh_from_s
                is_news = packing.version_facts.version_number > newer_than
                is_it |= (is_fresh and is_news) or not packing.is_begun
            if is_it and self._serves(packing, form, newest):
                return packing
        return None

    def _serves(
        self, packing: Packing, form: PackingForm, newest: VersionFacts
    ) -> bool:
        """Return whether the Gaussians of a packing will do."""
        held_count = packing.form.gaussians
        if held_count == form.gaussians:
            return True
        # Its first blocks are what is wanted, if they are the most important ones.
        if not packing.is_ranked or form.gaussians >= newest.gaussians:
            return False
        if not packing.is_begun:
            gaussians = max(held_count, form.gaussians)
            packing.form = packing.form._replace(gaussians=gaussians)
            return True
        return held_count >= form.gaussians * _NEAR_SHARE

    def release(self, packing: Packing, listener: Callable[[], object]) -> None:
        """Give a packing back; with its last user it is dropped."""
        with self._lock:
            packing.users -= 1
            if listener in packing.listeners:
                packing.listeners.remove(listener)
            self._drop_unused()

    def _drop_unused(self) -> None:
        """Forget packings without users, but those that are being made."""
        self._packings = [p for p in self._packings if p.users > 0 or p.is_under_way]
        is_packing = any(p.is_under_way for p in self._packings)
        if self._is_closed and not is_packing:
            # Some of what it keeps lies on the GPU.
            self._packer = VersionPacker(self._selection, self._note_drawn)

    # -- the thread that draws ---------------------------------------------------------

    def put(self, version_facts: VersionFacts) -> None:
        """Have these be the facts of the newest version.

        How many Gaussians are drawn is estimated until it is packed.
        """
        with self._lock:
            gaussians = math.ceil(version_facts.gaussians * self._drawn_share)
            gaussians = min(max(gaussians, 1), version_facts.gaussians)
            self._newest = version_facts._replace(
                version_number=next(_version_numbers), gaussians=gaussians
            )

    def watch_from(self, cameras: Sequence[Camera]) -> None:
        """Have what these cameras see count as important."""
        self._cameras = tuple(cameras)

    def start_requested(
        self, read: Callable[[], SceneToPack | None], now: float
    ) -> bool:
        """Begin with what was requested, as far as there is room.

        Args:
            read: returns the newest version; None while it cannot be read.
            now: seconds by any clock.

        Returns:
            Whether anything was begun with.
        """
        if not self.is_wanted:
            return False
        with self._lock:
            self._drop_unused()
            newest = self._newest
            starting = self._starting(newest)
            if self.is_wanted:
                self._take_back_stalled(now)
        if not starting or newest is None:
            return False
        source = None
        try:
            source = read()
        finally:
            for packing in starting:
                packing.is_begun = source is not None
        if source is None:
            return False
        for packing in starting:
            packing.begun_s = now
            packing.is_reading = source.ready is not None
            pack = functools.partial(self._pack, packing, source, self._cameras)
            _queue().submit(pack)
        return True

    def _starting(self, newest: VersionFacts | None) -> list[Packing]:
        """Mark the packings to begin with as begun, and return them."""
        starting = []
        started = [p for p in self._packings if p.is_begun]
        for packing in self._packings:
            if packing.is_begun:
                continue
            if newest is None or not self._adapt(packing, newest):
                self._end(packing, has_failed=True)
                continue
            total = sum(p.bytes for p in started) + packing.bytes
            if started and (len(started) >= MOST_PACKINGS or total > MOST_BYTES):
                break
            packing.is_begun = True
            started.append(packing)
            starting.append(packing)
        return starting

    def _take_back_stalled(self, now: float) -> None:
        """Take back packings of which nothing is sent: others wait for their room."""
        packings = [p for p in self._packings if p.is_done]
        stalled = [p for p in packings if p.progress.has_stalled(now)]
        for packing in stalled:
            packing.blocks = {}
        self._packings = [p for p in self._packings if p not in stalled]

    def _adapt(self, packing: Packing, newest: VersionFacts) -> bool:
        """Have a packing be of the newest version; return False where it is for another."""
        version_facts = packing.version_facts
        if version_facts.version_number == newest.version_number:
            return True
        has_grown = newest.gaussians > _MOST_GROWTH * version_facts.gaussians
        if has_grown or not packing.is_for_newest:
            return False
        gaussians = min(packing.form.gaussians, newest.gaussians)
        # All of a scene that has grown a little.
        may_be_whole = newest.gaussians <= min(2 * gaussians, MOST_GAUSSIANS)
        if not packing.is_ranked and may_be_whole:
            gaussians = newest.gaussians
        packing.form = packing.form._replace(gaussians=gaussians)
        packing.version_facts = newest
        has_harmonics = newest.coefficients > 0
        return gaussians > 0 and (
            has_harmonics or "harmonics" not in packing.form.parts
        )

    def close(self) -> None:
        """Pack nothing more. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._newest = None
            for packing in self._packings:
                if not packing.is_begun:
                    self._end(packing, has_failed=True)
            self._drop_unused()

    # -- the thread that packs ---------------------------------------------------------

    def _pack(
        self,
        packing: Packing,
        source: SceneToPack,
        cameras: tuple[Camera, ...],
        _: Job[None],
    ) -> None:
        """Pack a version, and tell who waits for it."""
        with self._lock:
            # No other page joins one that has failed.
            packing.has_failed = not packing.users or self._is_closed
        has_failed = packing.has_failed
        try:
            if not has_failed:
                gpu_time = self._packer.pack(packing, source, cameras)
                if gpu_time is not None:
                    self.gpu_times.append(gpu_time)
        # Memory may be short, or a GPU lost, which the next picture tells of.
        except Exception as error:
            has_failed = True
            self._tell(error)
        with self._lock:
            self._end(packing, has_failed=has_failed)
            self._drop_unused()

    def _tell(self, error: Exception) -> None:
        """Log why a packing failed, unless the one before failed for the same reason."""
        fault = f"a scene could not be packed for a page: {error}"
        if fault != self._fault:
            self._fault = fault
            _log.warning("%s", fault)

    def _end(self, packing: Packing, *, has_failed: bool) -> None:
        """Have a packing be done, or have failed."""
        packing.is_begun = True
        packing.is_reading = False
        packing.has_failed = has_failed
        packing.is_done = True
        if has_failed:
            packing.blocks = {}
        for listener in packing.listeners:
            listener()

    def _note_drawn(self, packing: Packing, count: int, total: int) -> None:
        """Note how many Gaussians of a version the selection leaves, of how many."""
        version_facts = packing.version_facts._replace(gaussians=count)
        with self._lock:
            gaussians = count
            if packing.is_ranked:
                gaussians = min(packing.form.gaussians, count)
            packing.form = packing.form._replace(gaussians=gaussians)
            packing.version_facts = version_facts
            self._drawn_share = count / max(total, 1)
            newest = self._newest
            if (
                newest is not None
                and newest.version_number == version_facts.version_number
            ):
                self._newest = version_facts
