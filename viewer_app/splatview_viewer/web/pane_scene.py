"""A scene of one pane on its way to a page that draws by itself: pass by pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from splatview_viewer.blocks.layout import BlockPart, block_count, part_bytes
from splatview_viewer.blocks.packing_request import PackingForm
from splatview_viewer.core.handed import HandedOn
from splatview_viewer.web.messages import (
    Blocks,
    SceneBegin,
    SceneEnd,
)
from splatview_viewer.web.pane_news import CHUNK_BYTES, PaneNews, PaneSide, chunks_of
from splatview_viewer.web.scene_plan import ScenePass, ScenePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_viewer.blocks.packing_request import Packing, VersionFacts
    from splatview_viewer.blocks.versions import PackedVersions
    from splatview_viewer.web.messages import SceneMessage
    from splatview_viewer.web.scene_pace import ScenePace


class PageCounter:
    """Counts the passes of a page, and its blocks and their ends."""

    def __init__(self) -> None:
        self.passes = 0
        self.messages = 0

    def next_pass(self) -> int:
        self.passes += 1
        return self.passes

    def next_message(self) -> int:
        self.messages += 1
        return self.messages


class _BlockRun(NamedTuple):
    """Some blocks that go together."""

    block_part: BlockPart
    first: int
    blocks: int


@dataclass
class _ComingPass:
    """A pass that is sent, or about to be."""

    plan: ScenePass
    version: VersionFacts
    packing: Packing | None
    """None: there are no Gaussians."""
    pass_number: int = 0
    """0: it has not begun."""
    pieces: Iterator[_BlockRun] = field(default_factory=lambda: iter(()))
    end_number: int = 0
    """The number of its end, which the page answers once it draws the pass; 0: it has
    not ended."""


class PaneScene:
    """Sends a scene of one pane. In the web thread."""

    def __init__(
        self,
        key: PaneSide,
        counter: PageCounter,
        most_gaussians: int,
        wake_writer: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """Start without a scene.

        Args:
            key: the pane, and which of its scenes.
            counter: of the page.
            most_gaussians: that the page can hold.
            wake_writer: has the page's writer look for something to send.
            wake: has the thread that draws turn.
        """
        self.handed = HandedOn()
        self._key = key
        self._counter = counter
        self._wake_writer = wake_writer
        self._wake = wake
        self._versions: PackedVersions | None = None
        self._plan = ScenePlan(most_gaussians)
        self._coming: _ComingPass | None = None
        self._failed_number = 0
        """The version that could not be packed."""
        self._dropped_passes: list[int] = []
        """The numbers of those whose end the page is to be told."""
        self._news = PaneNews(key)

    def use(self, handed: HandedOn) -> None:
        """Send what a view hands on from now on."""
        self.handed = handed
        if handed.drawing is None:
            self._drop()
        elif handed.versions is not self._versions:
            self._drop()
            self._forget_versions()
            self._news.marks.clear()
            self._versions = handed.versions
            self._plan = ScenePlan(self._plan.most_gaussians)
            self._note_sending(is_amid=False)

    def pause(self) -> None:
        """Hold nothing while the page is hidden, which may last."""
        self._drop()
        self._forget_versions()

    def close(self) -> None:
        """Give back what is packed for it. Idempotent."""
        self._drop()
        self._forget_versions()
        self._dropped_passes.clear()

    def note_taken(self, message_number: int) -> None:
        """Note that the page draws the pass that ended so.

        Of other panes it may have answered later blocks by then.
        """
        coming = self._coming
        if coming is not None and coming.end_number == message_number:
            self._coming = None

    def _forget_versions(self) -> None:
        if self._versions is not None:
            self._versions.forget_reader(self)

    def _drop(self) -> None:
        """Send no more of the pass that is under way.

        One that the page has as a whole is still waited for: until it is drawn, no
        other may begin.
        """
        coming = self._coming
        if coming is None or coming.end_number:
            return
        self._give_back(coming)
        self._coming = None
        self._note_sending(is_amid=False)
        self._plan.undo()
        if coming.pass_number:
            self._dropped_passes.append(coming.pass_number)
            self._news.marks.forget_pass(coming.pass_number)

    def _give_back(self, coming: _ComingPass) -> None:
        packing = coming.packing
        if packing is not None and self._versions is not None:
            self._versions.release(packing, self._wake_writer)
        coming.packing = None

    def _note_sending(self, *, is_amid: bool) -> None:
        """Note whether versions that come now are of no use."""
        if self._versions is None:
            return
        self._versions.note_sending(self, is_amid=is_amid)
        if not is_amid:
            # The newest one is taken now.
            self._wake()

    # -- what is next ------------------------------------------------------------------

    def next_news(self) -> tuple[SceneMessage | bytes, ...] | None:
        """Return what is to be said at once, with its data; None for nothing."""
        if self._dropped_passes:
            return (self._end_of(self._dropped_passes.pop(0), is_whole=False),)
        return self._news.next(self.handed)

    def next(
        self, pace: ScenePace, share: float, now: float
    ) -> tuple[SceneMessage | bytes, ...] | None:
        """Return the next message of a pass, with the data that follow it.

        Args:
            pace: of the page.
            share: of the page's line that this pane has.
            now: seconds by the pace's clock.
        """
        coming = self._coming
        if coming is None:
            coming = self._choose(pace.rate * share)
            self._coming = coming
        if coming is None or coming.end_number or not self._is_packed(coming):
            return None
        if not coming.pass_number:
            return (self._begin_pass(coming),)
        is_outdated = self._is_outdated(coming)
        block_run = None
        if not is_outdated:
            block_run = next(coming.pieces, None)
        if block_run is not None:
            return self._send(coming, block_run, pace, now)
        return (self._end(coming, pace, now, is_whole=not is_outdated),)

    def _choose(self, rate: float) -> _ComingPass | None:
        """Choose a pass and have it packed; None while the page has all."""
        versions = self._versions
        if versions is None or self.handed.drawing is None:
            return None
        version_facts = versions.newest
        if version_facts is None or version_facts.version_number == self._failed_number:
            return None
        had_version = self._plan.last_version
        plan = self._plan.next_pass(version_facts, rate)
        if plan is None:
            return None
        if not version_facts.gaussians:
            return _ComingPass(plan, version_facts, None)
        form = PackingForm(_sent_parts(plan), plan.form.gaussians)
        asked_version = version_facts.version_number if plan.gives_way else None
        packing = versions.request(
            form, asked_version, self._wake_writer, newer_than=had_version
        )
        if packing is None:
            self._plan.undo()
            return None
        # That thread begins with it.
        self._wake()
        return _ComingPass(plan, version_facts, packing)

    def _is_packed(self, coming: _ComingPass) -> bool:
        """Return whether a pass can be sent; drop it where it never can be."""
        packing = coming.packing
        if packing is None:
            return True
        if not packing.is_done:
            return False
        if packing.is_taken_back:
            self._drop()
            self._wake_writer()
            return False
        if coming.pass_number:
            return True
        holdable = self._plan.holdable(packing.version_facts.gaussians)
        is_too_large = not packing.is_ranked and holdable < packing.form.gaussians
        if not packing.has_failed and not is_too_large:
            return True
        if packing.has_failed and not coming.plan.refines:
            self._failed_number = coming.version.version_number
        self._drop()
        self._wake_writer()
        return False

    def _begin_pass(self, coming: _ComingPass) -> SceneBegin:
        """Begin with a pass: with what was packed, which may be of a newer version."""
        plan = coming.plan
        packing = coming.packing
        if packing is not None:
            coming.version = packing.version_facts
            gaussians = packing.form.gaussians
            if packing.is_ranked:
                gaussians = min(plan.form.gaussians, gaussians)
            plan = ScenePass(
                coming.version.version_number,
                plan.form._replace(gaussians=gaussians),
                plan.refines,
                plan.completes,
            )
            self._plan.note_change(plan)
            coming.plan = plan
            coming.pieces = _pieces(plan, coming.version.coefficients)
        coming.pass_number = self._counter.next_pass()
        if not plan.refines:
            rows = None if packing is None else packing.rows
            self._news.marks.note_pass(coming.pass_number, plan.form.gaussians, rows)
        self._note_sending(is_amid=not plan.gives_way)
        version_facts = coming.version
        return SceneBegin(
            **self._key._asdict(),
            pass_number=coming.pass_number,
            version=version_facts.version_number,
            refines=plan.refines,
            count=plan.form.gaussians,
            total=version_facts.gaussians,
            form="exact" if plan.form.is_exact else "quick",
            has_harmonics=plan.form.has_harmonics,
            sh_degree=version_facts.sh_degree,
            sh_stored=version_facts.coefficients,
            origin=version_facts.origin,
            antialiased=version_facts.antialiased,
            bytes=_size(plan, version_facts.coefficients),
        )

    def _is_outdated(self, coming: _ComingPass) -> bool:
        """Return whether a pass gives way to a newer version."""
        assert self._versions is not None
        newest = self._versions.newest
        is_newest = (
            newest is None or newest.version_number == coming.version.version_number
        )
        return coming.plan.gives_way and not is_newest

    def _send(
        self, coming: _ComingPass, block_run: _BlockRun, pace: ScenePace, now: float
    ) -> tuple[SceneMessage | bytes, ...] | None:
        """Return some blocks, in binary messages of bounded size.

        None if they were taken back just now.
        """
        packing = coming.packing
        assert packing is not None
        blocks = packing.blocks.get(block_run.block_part)
        if blocks is None:
            self._wake_writer()
            return None
        packing.progress.pieces += 1
        data = blocks[block_run.first : block_run.first + block_run.blocks].tobytes()
        message_number = self._counter.next_message()
        pace.sent(message_number, len(data), now)
        message = Blocks(
            **self._key._asdict(),
            pass_number=coming.pass_number,
            number=message_number,
            part=block_run.block_part,
            first=block_run.first,
            count=block_run.blocks,
            bytes=len(data),
        )
        return (message, *chunks_of(data))

    def _end(
        self, coming: _ComingPass, pace: ScenePace, now: float, *, is_whole: bool
    ) -> SceneEnd:
        """End a pass, of which nothing is left or wanted."""
        end = self._end_of(coming.pass_number, is_whole=is_whole)
        coming.end_number = end.number
        pace.sent(end.number, 0, now)
        self._give_back(coming)
        self._note_sending(is_amid=False)
        return end

    def _end_of(self, pass_number: int, *, is_whole: bool) -> SceneEnd:
        return SceneEnd(
            **self._key._asdict(),
            pass_number=pass_number,
            number=self._counter.next_message(),
            is_whole=is_whole,
        )


def _sent_parts(plan: ScenePass) -> tuple[BlockPart, ...]:
    """Return the parts of blocks that a pass sends."""
    form = plan.form
    if plan.refines:
        return ("harmonics",) if form.has_harmonics else ("exact",)
    base: Literal["exact", "quick"] = "exact" if form.is_exact else "quick"
    if form.has_harmonics:
        return (base, "harmonics")
    return (base,)


def _pieces(plan: ScenePass, coefficients: int) -> Iterator[_BlockRun]:
    """Yield the pieces in which the blocks of a pass are sent, as many as go together."""
    blocks = block_count(plan.form.gaussians)
    for block_part in _sent_parts(plan):
        step = max(CHUNK_BYTES // part_bytes(block_part, coefficients), 1)
        for first in range(0, blocks, step):
            yield _BlockRun(block_part, first, min(step, blocks - first))


def _size(plan: ScenePass, coefficients: int) -> int:
    """Return the bytes of all blocks of a pass."""
    blocks = block_count(plan.form.gaussians)
    return blocks * sum(
        part_bytes(block_part, coefficients) for block_part in _sent_parts(plan)
    )
