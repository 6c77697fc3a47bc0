"""The Gaussians of a page's passes that stand out, by their places in what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class Marks(NamedTuple):
    """The Gaussians of a pass that stand out from now on."""

    pass_number: int
    marked: list[int]
    """Their places in the pass."""


@dataclass
class _SentOrder:
    """The Gaussians of a pass, in the order in which the page has them."""

    pass_number: int
    count: int
    rows: np.ndarray | None
    """As `Packing.rows`; it may go on after `count`."""
    marked: tuple[int, ...] = ()
    """Those that stand out in the page, by their indices in the scene."""

    def places_of(self, marked: tuple[int, ...]) -> list[int]:
        """Return the places of Gaussians in the pass, as far as it has them."""
        if self.rows is None:
            return [index for index in marked if index < self.count]
        import numpy as np

        return np.flatnonzero(np.isin(self.rows[: self.count], marked)).tolist()


class SceneMarks:
    """Follows what a page has of a scene, and what it knows of what stands out."""

    def __init__(self) -> None:
        self._orders: list[_SentOrder] = []
        """Those of the pass that the page draws, and of the one that comes; or of the one
        before and the one that it draws. It ignores what it has no more."""

    def note_pass(self, pass_number: int, count: int, rows: np.ndarray | None) -> None:
        """Note that a pass begins which refines none.

        Args:
            pass_number: of the pass.
            count: its Gaussians.
            rows: their indices in the scene, as `Packing.rows`.
        """
        order = _SentOrder(pass_number, count, rows)
        self._orders = [*self._orders[-1:], order]

    def forget_pass(self, pass_number: int) -> None:
        """Note that a pass was dropped before its end."""
        self._orders = [
            each for each in self._orders if each.pass_number != pass_number
        ]

    def clear(self) -> None:
        """Forget all passes: what comes is of another scene."""
        self._orders.clear()

    def next(self, marked: tuple[int, ...]) -> Marks | None:
        """Return what the page does not know yet of a pass; None where it knows all.

        marked: the Gaussians that stand out, by their indices in the scene.
        """
        for order in self._orders:
            if order.marked != marked:
                order.marked = marked
                return Marks(order.pass_number, order.places_of(marked))
        return None
