"""The panes of a user that show two entries, alone, in one picture, or subtracted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from splatview_viewer.compare.pair import PairSource, PairView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.compare.pair import PairStateMode
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

Arrangement = Literal["beside", "split", "blend"]
"""How two entries are shown."""


class Pairing(NamedTuple):
    """Two entries that are compared, by their keys."""

    first: str
    second: str

    @property
    def swapped(self) -> Pairing:
        return Pairing(self.second, self.first)


class Panes(NamedTuple):
    """The panes of a user that show two entries."""

    first: Viewport | None
    """A alone."""
    second: Viewport | None
    """B alone."""
    joint: Viewport | None
    """Both in one picture."""
    difference: Viewport | None

    @property
    def arrangement(self) -> Arrangement | None:
        """The way both are shown; None: they are not."""
        if self.joint is None:
            view = None
        else:
            view = pair_view(self.joint)
        if view is not None:
            if view.mode == "blend":
                return "blend"
            return "split"
        if self.first is not None and self.second is not None:
            return "beside"
        return None

    @property
    def pair_views(self) -> list[PairView]:
        """The views of both in one picture, the difference first."""
        views = []
        for viewport in (self.difference, self.joint):
            if viewport is None:
                view = None
            else:
                view = pair_view(viewport)
            if view is not None:
                views.append(view)
        return views


def pair_view(viewport: Viewport) -> PairView | None:
    """Return the view of two entries in a viewport; None for any other."""
    view = viewport.view
    if view is None or not isinstance(view.view, PairView):
        return None
    return view.view


def pairing_in(viewport: Viewport) -> Pairing | None:
    """Return the two entries that a viewport shows in one picture; None: it does not."""
    slot = viewport.slot
    if slot is None or not isinstance(slot.source, PairSource):
        return None
    return Pairing(*slot.source.uses)


def pairings_beside(viewport: Viewport, key: str) -> Iterator[Pairing]:
    """Yield an entry that a viewport shows with that of each other, in their order."""
    is_before = True
    for other in viewport.user.layout:
        if other is viewport:
            is_before = False
        elif other.key is None or other.key == key:
            continue
        elif is_before:
            yield Pairing(other.key, key)
        else:
            yield Pairing(key, other.key)


def panes_of(user: User, pairing: Pairing) -> Panes:
    """Return the panes of a user that show two entries, the active one before others."""
    active = user.layout.active
    first = None
    second = None
    joint = None
    difference = None
    for viewport in sorted(user.layout, key=lambda v: v is not active):
        if pairing_in(viewport) == pairing:
            view = pair_view(viewport)
            if view is not None and view.mode == "difference":
                difference = difference or viewport
            else:
                joint = joint or viewport
        elif viewport.key == pairing.first and first is None:
            first = viewport
        elif viewport.key == pairing.second:
            second = second or viewport
    return Panes(first, second, joint, difference)


def set_pair_mode(viewport: Viewport, mode: PairStateMode) -> None:
    """Choose how a viewport shows two entries."""
    view = pair_view(viewport)
    if view is not None:
        view.change(mode=mode)
        viewport.user.mark()
