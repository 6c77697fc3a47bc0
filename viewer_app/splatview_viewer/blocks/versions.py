"""Packed versions of a scene in host memory, for all pages that draw it by themselves.

A page's connection requests a packing in its own thread. The thread that draws begins
with it, since it alone may read the scene, and a worker packs: on a GPU on a stream of
its own, in pieces through pinned memory. Pages that want the same share it.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.blocks.host_packing import HostPacker
from splatview_viewer.blocks.importance import drawn_rows, ranked_by_importance
from splatview_viewer.blocks.layout import BlockPart, block_count, part_bytes
from splatview_viewer.blocks.packing import BlockedScene
from splatview_viewer.core.jobs import JobQueue
from splatview_viewer.core.selection import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import torch

    from splatview_viewer.blocks.unpacking import SceneBlocks
    from splatview_viewer.core.jobs import Job
    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

MOST_GAUSSIANS = 6_000_000
"""Gaussians that a page is asked to hold."""
MOST_PACKINGS = 8
"""Packings of a scene that are held at once: each page on a line of its own pace may be
in the middle of another one."""
MOST_BYTES = 768 << 20
"""Bytes of all of them, where they are more than one."""
STALLED_S = 5.0
"""Seconds after which a packing of which nothing was sent is taken back, where others
wait for its room: a page may have stopped reading in the middle of it."""
_ORIGIN_SAMPLE = 1000
"""Centres by which an origin is placed."""

_log = logging.getLogger("splatview")
_version_numbers = count(1)


class VersionFacts(NamedTuple):
    """Facts about a version of a scene."""

    version_number: int
    """Another one for each version of each scene."""
    gaussians: int
    sh_degree: int
    antialiased: bool
    origin: tuple[float, float, float]
    """What positions are relative to."""

    @property
    def coefficients(self) -> int:
        """Coefficients in use beyond degree 0."""
        return (self.sh_degree + 1) ** 2 - 1


class PackingForm(NamedTuple):
    """The parts of a version that a packing holds, and of how many Gaussians."""

    parts: tuple[BlockPart, ...]
    gaussians: int
    """The most important ones, the first ones first, if they are fewer than all."""


class SceneToPack(NamedTuple):
    """The newest version, as a worker can read it."""

    scene: GaussianScene
    ready: Any
    """A CUDA event, recorded once the GPU has the scene; None: it lies in host memory,
    and stays as it is."""
    blocks: SceneBlocks | None = None
    """The same version in blocks, where it was read from them."""


@dataclass
class SendingProgress:
    """Tells whether anything of a packing is sent."""

    pieces: int = 0
    """Pieces that were sent, to all pages together. The web thread alone counts them."""
    _seen_pieces: int = -1
    _moved_s: float = 0.0
    """When `_seen_pieces` was seen to change."""

    def has_stalled(self, now: float) -> bool:
        """Return whether nothing was sent for long. In the thread that draws."""
        if self.pieces != self._seen_pieces:
            self._seen_pieces = self.pieces
            self._moved_s = now
        return now - self._moved_s >= STALLED_S


@dataclass(eq=False)
class Packing:
    """A version in one form, once it `is_done`."""

    version_facts: VersionFacts
    form: PackingForm
    is_for_newest: bool
    """Any version will do that is the newest when it is begun with."""
    blocks: dict[BlockPart, np.ndarray] = field(default_factory=dict)
    """(blocks, bytes) uint8 by part."""
    rows: np.ndarray | None = None
    """Indices of its Gaussians in the scene, in its order, (N,) int32; None: it has all
    of them in their own."""
    is_done: bool = False
    has_failed: bool = False
    is_begun: bool = False
    is_reading: bool = False
    """The scene is being read on a GPU, and has to stay as it is."""
    users: int = 0
    listeners: list[Callable[[], object]] = field(default_factory=list)
    progress: SendingProgress = field(default_factory=SendingProgress)

    @property
    def is_taken_back(self) -> bool:
        """True if it was dropped while pages had it, as nothing of it was sent."""
        return self.is_done and not self.has_failed and not self.blocks

    @property
    def is_ranked(self) -> bool:
        """True if it holds the most important Gaussians first."""
        return self.form.gaussians < self.version_facts.gaussians

    @property
    def is_under_way(self) -> bool:
        """True while a worker is at it."""
        return self.is_begun and not self.is_done

    @property
    def bytes(self) -> int:
        """Bytes of all its blocks."""
        sizes = [
            part_bytes(p, self.version_facts.coefficients) for p in self.form.parts
        ]
        return block_count(self.form.gaussians) * sum(sizes)


@dataclass
class _PackingMemory:
    """Results that one packing leaves to the next. The packing thread alone uses them."""

    drawn: tuple[int, torch.Tensor] | None = None
    """The number of a version, and its Gaussians that the selection does not hide."""
    ranks: tuple[int, torch.Tensor] | None = None
    """The number of a version, and its Gaussians by importance."""
    packer: HostPacker = field(default_factory=HostPacker)
    stream: torch.cuda.Stream | None = None
    fault: str = ""
    """Why a packing failed last, which is told once."""


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
        self._memory = _PackingMemory()
        self._is_closed = False
        self.gpu_ms: deque[float] = deque()
        """Milliseconds that a GPU took for each packing, to be taken out."""

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
    def is_awaited(self) -> bool:
        """True while a newer version would be packed soon.

        While all readers are in the middle of one, those that come now would be old by
        then.
        """
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
    ) -> Packing | None:
        """Have a version packed, unless it is, and return the packing.

        The thread that draws has to turn for that. Give it back by `release`.

        Args:
            form: of the packing.
            version_number: of the version; None: the newest one.
            listener: called once the packing is done or has failed, from any thread.

        Returns:
            None if there is no such version any more.
        """
        with self._lock:
            newest = self._newest
            if newest is None or self._is_closed:
                return None
            packing = self._find(form, newest, version_number)
            if packing is None:
                if version_number not in (None, newest.version_number):
                    return None
                packing = Packing(newest, form, is_for_newest=version_number is None)
                self._packings.append(packing)
            packing.users += 1
            packing.listeners.append(listener)
        return packing

    def _find(
        self, form: PackingForm, newest: VersionFacts, version_number: int | None
    ) -> Packing | None:
        for packing in self._packings:
            is_it = packing.version_facts.version_number == (
                version_number or newest.version_number
            )
            is_it |= (
                version_number is None
                and packing.is_for_newest
                and not packing.is_begun
            )
            if not is_it or packing.has_failed or packing.form.parts != form.parts:
                continue
            if packing.form.gaussians == form.gaussians:
                return packing
            # Its first blocks are what is wanted, if they are the most important ones.
            is_part = form.gaussians < newest.gaussians and packing.is_ranked
            if is_part and form.gaussians <= packing.form.gaussians:
                return packing
        return None

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
            # Some of it lies on the GPU.
            self._memory = _PackingMemory()

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
    ) -> None:
        """Begin with what was requested, as far as there is room.

        Args:
            read: returns the newest version; None while it cannot be read.
            now: seconds by any clock.
        """
        if not self.is_wanted:
            return
        with self._lock:
            self._drop_unused()
            newest = self._newest
            starting = self._starting(newest)
            if self.is_wanted:
                self._take_back_stalled(now)
        if not starting or newest is None:
            return
        source = None
        try:
            source = read()
        finally:
            for packing in starting:
                packing.is_begun = source is not None
        if source is None:
            return
        for packing in starting:
            packing.is_reading = source.ready is not None
            pack = functools.partial(self._pack, packing, source, self._cameras)
            _queue().submit(pack)

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
        if not packing.is_for_newest:
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
                self._pack_scene(packing, source, cameras)
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
        if fault != self._memory.fault:
            self._memory.fault = fault
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

    def _pack_scene(
        self, packing: Packing, source: SceneToPack, cameras: tuple[Camera, ...]
    ) -> None:
        import torch

        ready = source.ready
        if ready is None:
            with torch.no_grad():
                self._pack_parts(packing, source, cameras)
            return
        with torch.no_grad(), torch.cuda.device(source.scene.gpu):
            if (
                self._memory.stream is None
                or self._memory.stream.device != source.scene.gpu
            ):
                self._memory.stream = torch.cuda.Stream()
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            with torch.cuda.stream(self._memory.stream):
                self._memory.stream.wait_event(ready)
                start.record()
                self._pack_parts(packing, source, cameras)
                end.record()
                end.synchronize()
            self.gpu_ms.append(start.elapsed_time(end))

    def _pack_parts(
        self, packing: Packing, source: SceneToPack, cameras: tuple[Camera, ...]
    ) -> None:
        """Pack all parts of a packing, or take what is packed."""
        rows = self._rows(packing, source.scene, cameras)
        if rows is not None:
            packing.rows = rows.cpu().numpy()
        coefficients = 0
        if "harmonics" in packing.form.parts:
            coefficients = packing.version_facts.coefficients
        scene = replace(source.scene, shN=source.scene.shN[:, :coefficients])
        blocked = BlockedScene(scene, packing.version_facts.origin)
        for block_part in packing.form.parts:
            packed = None
            if rows is None and source.blocks is not None:
                packed = source.blocks.packed(block_part, coefficients)
            if packed is None:
                packed = self._pack_part(block_part, packing, blocked, rows)
            packing.blocks[block_part] = packed

    def _rows(
        self, packing: Packing, scene: GaussianScene, cameras: tuple[Camera, ...]
    ) -> torch.Tensor | None:
        """Return the Gaussians of a packing in its order; None: all, in their own."""
        import torch

        drawn = self._drawn_rows(packing, scene)
        if not packing.is_ranked:
            return drawn
        ranks = self._ranked(packing.version_facts, scene, cameras)
        if drawn is not None:
            is_drawn = torch.zeros(len(ranks), dtype=torch.bool, device=ranks.device)
            is_drawn[drawn] = True
            ranks = ranks[is_drawn[ranks]]
        return ranks[: packing.form.gaussians]

    def _drawn_rows(
        self, packing: Packing, scene: GaussianScene
    ) -> torch.Tensor | None:
        """Return the Gaussians that are drawn, and note their number; None: all are."""
        if self._selection == EVERYTHING:
            return None
        version_number = packing.version_facts.version_number
        if self._memory.drawn is None or self._memory.drawn[0] != version_number:
            self._memory.drawn = None
            self._memory.drawn = version_number, drawn_rows(scene, self._selection)
        rows = self._memory.drawn[1]
        count = len(rows)
        with self._lock:
            held_all = not packing.is_ranked
            gaussians = count if held_all else min(packing.form.gaussians, count)
            packing.form = packing.form._replace(gaussians=gaussians)
            packing.version_facts = packing.version_facts._replace(gaussians=count)
            self._drawn_share = count / max(len(scene), 1)
            if (
                self._newest is not None
                and self._newest.version_number == version_number
            ):
                self._newest = packing.version_facts
        return rows

    def _ranked(
        self,
        version_facts: VersionFacts,
        scene: GaussianScene,
        cameras: tuple[Camera, ...],
    ) -> torch.Tensor:
        """Return the Gaussians by importance: the same order for all forms of a version."""
        if (
            self._memory.ranks is None
            or self._memory.ranks[0] != version_facts.version_number
        ):
            self._memory.ranks = None
            order = ranked_by_importance(scene, version_facts.origin, cameras)
            self._memory.ranks = version_facts.version_number, order
        return self._memory.ranks[1]

    def _pack_part(
        self,
        block_part: BlockPart,
        packing: Packing,
        blocked: BlockedScene,
        rows: torch.Tensor | None,
    ) -> np.ndarray:
        """Pack a part of all blocks."""
        import numpy as np

        size = part_bytes(block_part, packing.version_facts.coefficients)
        packed = np.empty((block_count(packing.form.gaussians), size), np.uint8)
        self._memory.packer.pack(blocked, block_part, packed, rows)
        return packed


def origin_of(means: np.ndarray) -> tuple[float, float, float]:
    """Return a point amid centres (N, 3), as far as they are finite."""
    import numpy as np

    points = means[:: len(means) // _ORIGIN_SAMPLE + 1]
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return 0.0, 0.0, 0.0
    x, y, z = np.median(points, 0).tolist()
    return x, y, z
