"""The notes in panes' strips: A or B, how a pane is tied, and what it compares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.compare.arrangement import pairing_in
from splatview_viewer.compare.pair_words import distinct_names
from splatview_viewer.compare.ties import lead_of
from splatview_viewer.kinds import about
from splatview_viewer.workspace.feature import PaneNote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.compare.comparisons import Comparisons
    from splatview_viewer.shell.viewport import Viewport

_BADGES = "AB"


class PaneNotes:
    """Says in a pane's strip which part it has in a comparison."""

    def __init__(self, comparisons: Comparisons) -> None:
        self._comparisons = comparisons

    def of_pane(self, viewport: Viewport) -> PaneNote:
        """Return the letter, tie and names of a pane; empty for the only one."""
        user = viewport.user
        if len(user.layout) < 2:
            return PaneNote()
        badge = self._badge(viewport)
        subtitle = self._subtitle(viewport)
        entry = viewport.entry
        if entry is None or not (about(entry.kind).compared or pairing_in(viewport)):
            return PaneNote(badge)
        tied = self._comparisons.ties.tied(user)
        if viewport not in tied or len(tied) < 2:
            tip = "Moves by itself. Click: tied to the active pane again"
            return PaneNote(badge, False, tip, subtitle=subtitle)
        if self._has_own_frame(viewport, tied):
            tip = (
                "Up or scale differ from the other scene's, so each moves in its own "
                "frame. Click: this one by itself"
            )
            return PaneNote(badge, True, tip, "own frame", subtitle)
        tip = "Camera, step and look move together. Click: this one by itself"
        return PaneNote(badge, True, tip, subtitle=subtitle)

    def _subtitle(self, viewport: Viewport) -> str:
        """Return the names of two in one picture, where A and B are others; else ""."""
        pairing = pairing_in(viewport)
        if pairing is None or pairing == self._comparisons.seen_pairing(viewport.user):
            return ""
        slots = self._comparisons.catalogue.slots
        entries = [slots[key].entry for key in pairing if key in slots]
        return ", ".join(distinct_names(entries))

    def _has_own_frame(self, viewport: Viewport, tied: Sequence[Viewport]) -> bool:
        """Return whether a viewport moves in another frame than one it is tied to."""
        view = lead_of(viewport)
        if view is None:
            return False
        leaders = [lead_of(pane) for pane in tied if pane is not viewport]
        for leader in leaders:
            if leader is not None and leader.kind == view.kind:
                return view.view.has_own_frame(leader.view)
        return False

    def _badge(self, viewport: Viewport) -> str:
        """Return "A" or "B" for a pane that shows one of two that are compared."""
        pairing = self._comparisons.seen_pairing(viewport.user)
        if pairing is None or viewport.key not in pairing:
            return ""
        return _BADGES[pairing.index(viewport.key)]
