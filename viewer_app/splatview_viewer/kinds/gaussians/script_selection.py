"""Sends what the user has selected to a script that reads it (`splatview.selection`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from splatview_viewer.core.selection import EVERYTHING
from splatview_viewer.kinds.gaussians.scene_reader import SceneReader
from splatview_viewer.scene import HIDDEN, flags
from splatview_viewer.scene.scene import SceneCopy
from splatview_viewer.scene.selecting import mask_of
from splatview_viewer.scene_view.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from splatview_viewer.core.selection import Mask, Selection
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene.scene import GaussianScene

_REST_S = 0.2
"""Seconds without a change after which a selection is sent."""


class _Choice(NamedTuple):
    """The selection of a scene that a user has made."""

    selection: Selection
    """Filter, crop and hiding, which count where no Gaussian is chosen."""
    chosen: Mask | None

    @property
    def is_empty(self) -> bool:
        return self.chosen is None and self.selection == EVERYTHING


_NOTHING = _Choice(EVERYTHING, None)


class _Sent(NamedTuple):
    """A selection that the script was sent."""

    choice: _Choice = _NOTHING
    total: int = 0
    """The number of Gaussians of the scene."""
    mask: Mask | None = None
    """The Gaussians; None: nothing was selected."""


class SendSelection(Tool["GaussianView"]):
    """Sends the view's selection to the script, once it rests, if the script reads it."""

    name: ClassVar[str] = "script selection"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.is_shared = True
        """The user lets the script read it."""
        self._choice = _NOTHING
        """What was selected at the last turn."""
        self._rests_at = -math.inf
        """When that has rested long enough."""
        self._sent = _Sent()
        """What the script was sent last."""
        self._sender: Callable[[int, bytes, bool], None] | None = None
        """What it was sent by."""
        self._reader = SceneReader(view, "selection")

    @property
    def is_read(self) -> bool:
        """True if the script reads selections."""
        return self.view.data.send_selection is not None

    def tick(self, now: float) -> bool:
        data = self.view.data
        if data.send_selection is None or data.summary is None:
            return False
        if data.player is not None and data.player.position is not None:
            # What is shown is not what the script has now.
            return False
        if data.send_selection is not self._sender:
            # Another script listens, or the same one again.
            self._sender = data.send_selection
            self._sent = _Sent()
        self._send_evaluated()
        choice = self._present_choice()
        if choice != self._choice:
            self._choice = choice
            self._rests_at = now + _REST_S
        if now >= self._rests_at:
            self._update(now, choice, data.summary.count)
        return False

    def _present_choice(self) -> _Choice:
        state = self.view.state
        if not self.is_shared:
            return _NOTHING
        if state.chosen is not None:
            return _Choice(EVERYTHING, state.chosen)
        return _Choice(state.selection.unmarked, None)

    def _update(self, now: float, choice: _Choice, count: int) -> None:
        """Send a selection that rests, unless the script has it."""
        sent = self._sent
        chosen = choice.chosen
        if chosen is not None and chosen.total != count:
            # `Select` ends it in a moment.
            return
        # The view that changed last answers for Gaussians that are others.
        if choice == sent.choice and self.view.data.selecting is not self:
            return
        if chosen is None and not choice.is_empty:
            self._reader.read(now, (choice, count), _reading(choice.selection))
        elif choice != sent.choice:
            self._send(choice, count, chosen)

    def _send_evaluated(self) -> None:
        """Send the Gaussians that a job has found to be kept, if they still count."""
        answer: tuple[tuple[_Choice, int], Mask] | None = self._reader.take()
        if answer is None:
            return
        (choice, count), mask = answer
        if choice != self._choice or mask.total != count:
            return
        sent = self._sent
        is_same = choice == sent.choice and count == sent.total
        if is_same and sent.mask is not None and sent.mask.bits == mask.bits:
            return
        self._send(choice, count, mask)

    def _send(self, choice: _Choice, count: int, mask: Mask | None) -> None:
        """Send the mask of a selection; None: nothing is selected."""
        data = self.view.data
        if data.send_selection is None:
            return
        sent = self._sent
        # A choice of Gaussians ends by itself where their number changes.
        has_ended = choice.chosen is None and sent.choice.chosen is not None
        is_again = choice == sent.choice or (has_ended and count != sent.total)
        self._sent = _Sent(choice, count, mask)
        data.selecting = self
        if mask is None:
            data.send_selection(0, b"", is_again)
        else:
            data.send_selection(mask.total, mask.bits, is_again)

    def close(self) -> None:
        self._reader.forget()


def _reading(
    selection: Selection,
) -> Callable[[GaussianScene], Callable[[], Mask]]:
    """Return what starts to read which Gaussians of a scene a selection keeps."""

    def start(scene: GaussianScene) -> Callable[[], Mask]:
        def compute() -> list[Any]:
            return [(flags(scene, selection) & HIDDEN) == 0]

        copy = SceneCopy(scene, compute)

        def finish() -> Mask:
            is_kept: np.ndarray = copy.arrays()[0]
            return mask_of(is_kept)

        return finish

    return start
