"""Pages that draw scenes by themselves, without a browser.

The class checks what comes as the page's script would have to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from splatview_viewer.blocks.layout import BlockPart, block_count, part_bytes
from splatview_viewer.core.handed import PhotoFile
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.web import messages as m
from support.unpacked_blocks import unpacked


@dataclass
class HeldPass:
    """A pass, as far as it has come."""

    header: m.SceneBegin
    blocks: dict[tuple[BlockPart, int], bytes] = field(default_factory=dict)
    marked: list[int] = field(default_factory=list)
    """Places of the Gaussians that stand out."""
    base_pass: int = 0
    """The pass that brought the Gaussians."""

    def check_whole(self) -> None:
        """Check that each block of each part has come."""
        header = self.header
        sizes: dict[BlockPart, int] = {}
        for (block_part, _), data in self.blocks.items():
            sizes[block_part] = sizes.get(block_part, 0) + len(data)
        count = block_count(header.count)
        for block_part, size in sizes.items():
            assert size == count * part_bytes(block_part, header.sh_stored), header
        assert sum(sizes.values()) == header.bytes


class PageScenes:
    """The scenes of a page. `send` answers what came."""

    def __init__(self, send: Callable[[m.ClientMessage], object]) -> None:
        self.answers = True
        """False: nothing that comes is ever taken."""
        self.late_panes: set[int] = set()
        """Panes of which the ends of passes are never answered."""
        self.handed: dict[int, m.HandedScene] = {}
        """What was handed on last, by pane."""
        self.drawn: dict[int, HeldPass] = {}
        """What is drawn, by pane."""
        self.photos: dict[int, PhotoFile] = {}
        """The photograph that came last, by pane."""
        self.passes: list[m.SceneBegin] = []
        """All that have begun."""
        self.dropped = 0
        """Passes that ended unfinished."""
        self.bytes = 0
        """Of all blocks that came."""
        self.moves = 0
        """Messages about what is drawn."""
        self._coming: dict[int, HeldPass] = {}
        self._send = send
        self.message_number = 0
        """The number of the last blocks or end that came."""

    def take(self, message: m.SceneMessage, data: bytes = b"") -> None:
        """Take a message, and what follows it."""
        if isinstance(message, m.HandedScene):
            self.handed[message.pane] = message
            self.moves += 1
        elif isinstance(message, m.SceneBegin):
            self.passes.append(message)
            assert message.pane not in self._coming
            coming = HeldPass(message)
            if not message.refines:
                coming.base_pass = message.pass_number
            self._coming[message.pane] = coming
        elif isinstance(message, m.Blocks):
            self._take_blocks(message, data)
        elif isinstance(message, m.PanePhoto):
            assert len(data) == message.bytes
            self.photos[message.pane] = PhotoFile(message.number, data)
        elif isinstance(message, m.MarkedScene):
            self._mark(message)
        else:
            self._end(message)

    def _take_blocks(self, message: m.Blocks, data: bytes) -> None:
        coming = self._coming[message.pane]
        assert coming.header.pass_number == message.pass_number
        size = part_bytes(message.part, coming.header.sh_stored)
        assert len(data) == size * message.count
        self.bytes += len(data)
        for index in range(message.count):
            block = data[index * size : (index + 1) * size]
            coming.blocks[message.part, message.first + index] = block
        self._answer(message.number)

    def _mark(self, message: m.MarkedScene) -> None:
        """Have Gaussians stand out in the pass that is drawn, or in the one that comes."""
        for held_pass in (self.drawn.get(message.pane), self._coming.get(message.pane)):
            if held_pass is None or held_pass.base_pass != message.pass_number:
                continue
            assert all(0 <= index < held_pass.header.count for index in message.marked)
            held_pass.marked = message.marked

    def _end(self, message: m.SceneEnd) -> None:
        coming = self._coming.pop(message.pane)
        assert coming.header.pass_number == message.pass_number
        if not message.is_whole:
            self.dropped += 1
        else:
            coming.check_whole()
            self._show(message.pane, coming)
        self._answer(message.number, is_late=message.pane in self.late_panes)

    def _show(self, pane: int, coming: HeldPass) -> None:
        """Draw a pass, or what it adds to the one that is drawn."""
        header = coming.header
        if not header.refines:
            self.drawn[pane] = coming
            return
        drawn = self.drawn[pane]
        assert drawn.header.version == header.version
        assert drawn.header.count == header.count
        blocks = {**drawn.blocks, **coming.blocks}
        self.drawn[pane] = HeldPass(header, blocks, drawn.marked, drawn.base_pass)

    def _answer(self, message_number: int, *, is_late: bool = False) -> None:
        assert message_number == self.message_number + 1
        self.message_number = message_number
        if self.answers and not is_late:
            self._send(m.Taken(message_number))

    def marked_means(self, pane: int) -> np.ndarray:
        """Return the centres of what stands out in a pane, (M, 3) float64, by x."""
        means = self.scene(pane).means.numpy()[self.drawn[pane].marked]
        return means[means[:, 0].argsort()]

    def scene(self, pane: int) -> GaussianScene:
        """Return the Gaussians that are drawn in a pane."""
        held_pass = self.drawn[pane]
        header = held_pass.header
        count = block_count(header.count)
        base: BlockPart = "exact" if header.form == "exact" else "quick"
        harmonics = None
        if header.has_harmonics:
            harmonics = _rows(held_pass, "harmonics", count)
        coefficients = header.sh_stored if header.has_harmonics else 0
        return unpacked(
            _rows(held_pass, base, count),
            harmonics,
            header.count,
            header.origin,
            coefficients,
        )


def _rows(held_pass: HeldPass, block_part: BlockPart, count: int) -> np.ndarray:
    """Return the blocks of a part, (blocks, bytes) uint8."""
    blocks = [
        np.frombuffer(held_pass.blocks[block_part, i], np.uint8) for i in range(count)
    ]
    return np.stack(blocks)
