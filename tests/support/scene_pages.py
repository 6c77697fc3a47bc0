"""Pages that draw scenes by themselves, without a browser.

The class checks what comes as the page's script would have to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from splatview_viewer.blocks.layout import BlockPart, block_count, part_bytes
from splatview_viewer.blocks.unpacking import unpacked
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.web import messages as m


@dataclass
class HeldPass:
    """A pass, as far as it has come."""

    begin: m.SceneBegin
    blocks: dict[tuple[BlockPart, int], bytes] = field(default_factory=dict)

    def check_whole(self) -> None:
        """Check that each block of each part has come."""
        begin = self.begin
        sizes: dict[BlockPart, int] = {}
        for (part, _), data in self.blocks.items():
            sizes[part] = sizes.get(part, 0) + len(data)
        count = block_count(begin.count)
        for part, size in sizes.items():
            assert size == count * part_bytes(part, begin.sh_stored), begin
        assert sum(sizes.values()) == begin.bytes


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
        self._number = 0

    def take(self, message: m.SceneMessage, data: bytes = b"") -> None:
        """Take a message, and what follows it."""
        if isinstance(message, m.HandedScene):
            self.handed[message.pane] = message
            self.moves += 1
        elif isinstance(message, m.SceneBegin):
            self.passes.append(message)
            assert message.pane not in self._coming
            self._coming[message.pane] = HeldPass(message)
        elif isinstance(message, m.Blocks):
            self._take_blocks(message, data)
        else:
            self._end(message)

    def _take_blocks(self, message: m.Blocks, data: bytes) -> None:
        coming = self._coming[message.pane]
        assert coming.begin.pass_number == message.pass_number
        size = part_bytes(message.part, coming.begin.sh_stored)
        assert len(data) == size * message.count
        self.bytes += len(data)
        for index in range(message.count):
            block = data[index * size : (index + 1) * size]
            coming.blocks[message.part, message.first + index] = block
        self._answer(message.number)

    def _end(self, message: m.SceneEnd) -> None:
        coming = self._coming.pop(message.pane)
        assert coming.begin.pass_number == message.pass_number
        if not message.is_whole:
            self.dropped += 1
        else:
            coming.check_whole()
            self._show(message.pane, coming)
        self._answer(message.number, is_late=message.pane in self.late_panes)

    def _show(self, pane: int, coming: HeldPass) -> None:
        """Draw a pass, or what it adds to the one that is drawn."""
        begin = coming.begin
        if not begin.refines:
            self.drawn[pane] = coming
            return
        drawn = self.drawn[pane]
        assert drawn.begin.version == begin.version
        assert drawn.begin.count == begin.count
        self.drawn[pane] = HeldPass(begin, {**drawn.blocks, **coming.blocks})

    def _answer(self, number: int, *, is_late: bool = False) -> None:
        assert number == self._number + 1
        self._number = number
        if self.answers and not is_late:
            self._send(m.Taken(number))

    def scene(self, pane: int) -> GaussianScene:
        """Return the Gaussians that are drawn in a pane."""
        held = self.drawn[pane]
        begin = held.begin
        count = block_count(begin.count)
        base: BlockPart = "exact" if begin.form == "exact" else "quick"
        harmonics = None
        if begin.has_harmonics:
            harmonics = _rows(held, "harmonics", count)
        coefficients = begin.sh_stored if begin.has_harmonics else 0
        return unpacked(
            _rows(held, base, count), harmonics, begin.count, begin.origin, coefficients
        )


def _rows(held: HeldPass, part: BlockPart, count: int) -> np.ndarray:
    """Return the blocks of a part, (blocks, bytes) uint8."""
    blocks = [np.frombuffer(held.blocks[part, i], np.uint8) for i in range(count)]
    return np.stack(blocks)
