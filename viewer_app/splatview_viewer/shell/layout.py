"""The layout of a user's viewports: beside each other, or one alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.viewport import Viewport
from splatview_viewer.shell.zones import PHONE_STRIP_HEIGHT, STRIP_HEIGHT, edge_of
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.shell.user import User

MOST = 9
"""Viewports of one user."""
GAP = 1
"""Points between viewports."""
_BEST_ASPECT = 1.25
"""Width to height that viewports come as near to as they can."""


class Layout:
    """The viewports of a user, one at least. Entries are read for visible ones only."""

    def __init__(self, user: User) -> None:
        self.active = Viewport(user)
        """The one that the panel describes, and that keys are for."""
        self.all = [self.active]
        self.maximised = False
        """True while the active one is seen alone."""
        self._user = user
        self._pointed_viewport: Viewport | None = None
        """The viewport under the pointer."""
        self._is_page_visible = False
        self._placement_key: tuple[object, ...] = ()
        """What the places of the viewports were calculated from."""

    def __iter__(self) -> Iterator[Viewport]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def visible_viewports(self) -> list[Viewport]:
        if self.maximised:
            return [self.active]
        return self.all

    # -- changes -----------------------------------------------------------------------

    def observe(self, is_page_visible: bool) -> None:
        """Have the entries of visible viewports read from now on, or of none."""
        self._is_page_visible = is_page_visible
        self._settle()

    def activate(self, viewport: Viewport) -> None:
        if viewport is not self.active:
            self.active = viewport
            self._changed()

    def add(self, key: str | None) -> Viewport:
        """Add a viewport and make it active; return the active one at the limit."""
        if len(self.all) >= MOST:
            self._user.say(f"{MOST} panes are the most")
            self.active.select(key)
            return self.active
        viewport = Viewport(self._user)
        viewport.by_itself = False
        self.all.insert(self.all.index(self.active) + 1, viewport)
        self.active = viewport
        self.maximised = False
        self._changed()
        viewport.select(key)
        return viewport

    def remove(self, viewport: Viewport) -> None:
        """Close one; the last one stays."""
        if len(self.all) < 2:
            return
        index = self.all.index(viewport)
        self._user.catalogue.leave(viewport)
        self.all.remove(viewport)
        if viewport is self.active:
            self.active = self.all[min(index, len(self.all) - 1)]
        self.maximised = self.maximised and len(self.all) > 1
        self._changed()

    def maximise(self, viewport: Viewport) -> None:
        """See one alone, or all of them again."""
        self.maximised = not self.maximised or viewport is not self.active
        self.active = viewport
        self._changed()

    def restore(
        self, viewports: Sequence[Viewport], active: Viewport, maximised: bool
    ) -> None:
        """Have these viewports again, of which some may have been closed meanwhile."""
        for viewport in self.all:
            if viewport not in viewports:
                self._user.catalogue.leave(viewport)
        self.all = list(viewports)
        self.active = active
        self.maximised = maximised
        self._changed()

    def step(self, count: int) -> None:
        """Activate the next viewport, or the one before."""
        self.active = self.all[(self.all.index(self.active) + count) % len(self.all)]
        self._changed()

    def _changed(self) -> None:
        self._settle()
        self._user.mark(SETTLE)

    def _settle(self) -> None:
        """Join the visible viewports to the catalogue, and no others."""
        catalogue = self._user.catalogue
        viewports = []
        if self._is_page_visible:
            viewports = self.visible_viewports
        for viewport in self.all:
            if viewport not in viewports:
                catalogue.hide(viewport)
        for viewport in viewports:
            if viewport not in catalogue.viewports:
                catalogue.join(viewport)

    # -- where they lie ----------------------------------------------------------------

    def place(self, area: Rect, scale: float) -> None:
        """Give those that are seen their parts of `area`, each with a strip above it."""
        viewports = self.visible_viewports
        surroundings = self._user.interface.surroundings
        # A phone's top bar names what its only pane shows.
        is_named = surroundings == "desktop" or (
            surroundings == "phone" and len(viewports) > 1
        )
        placement_key = (area, scale, is_named, *viewports)
        if placement_key == self._placement_key:
            return
        self._placement_key = placement_key
        columns, rows = grid(len(viewports), area.width, area.height)
        header = 0
        if is_named:
            height = STRIP_HEIGHT
            if surroundings == "phone":
                height = PHONE_STRIP_HEIGHT
            header = min(round(height * scale), area.height // (2 * rows))
        gap = max(round(GAP * scale), 1)
        for i, viewport in enumerate(viewports):
            row, column = divmod(i, columns)
            # The last row is shared by fewer.
            if row < rows - 1:
                columns_of_row = columns
            else:
                columns_of_row = len(viewports) - columns * (rows - 1)
            left, right = (
                round(area.width * c / columns_of_row) + gap * (0 < c < columns_of_row)
                for c in (column, column + 1)
            )
            top, bottom = (
                round(area.height * r / rows) + gap * (0 < r < rows)
                for r in (row, row + 1)
            )
            right = right - gap * (column + 1 < columns_of_row)
            bottom = bottom - gap * (row + 1 < rows)
            x = area.x + left
            y = area.y + top
            width = max(right - left, 1)
            viewport.head = Rect(x, y, width, header)
            viewport.rect = Rect(x, y + header, width, max(bottom - top - header, 1))

    def viewport_of(self, event: Event) -> Viewport:
        """Return the viewport that an event is for.

        It is where the pointer is, or where a drag began; of keys the active one.
        """
        viewports = self.visible_viewports
        captor = next((viewport for viewport in viewports if viewport.captured), None)
        if captor is not None:
            return captor
        if isinstance(
            event,
            (ev.PointerMove, ev.PointerPress, ev.PointerRelease, ev.Wheel, ev.Pinch),
        ):
            for viewport in viewports:
                if viewport.rect.contains(event.x, event.y):
                    if (
                        self._pointed_viewport is not None
                        and self._pointed_viewport is not viewport
                        and self._pointed_viewport in viewports
                    ):
                        self._pointed_viewport.take(ev.PointerLeave(), False)
                    self._pointed_viewport = viewport
                    return viewport
        if (
            isinstance(event, ev.PointerLeave)
            and self._pointed_viewport is not None
            and self._pointed_viewport in viewports
        ):
            return self._pointed_viewport
        return self.active

    def covered(self) -> Sequence[Rect]:
        """Return the rectangles of imgui's windows over the viewports.

        The strips above these belong to them.
        """
        heads = [
            viewport.head for viewport in self.visible_viewports if viewport.head.height
        ]
        zones = self._user.interface.zones
        boards = [*heads, edge_of(zones, self._user.screen.state.scale)]
        # On a small screen these lie over the picture.
        if zones.form == "phone":
            boards.append(zones.time)
        elif zones.form == "narrow":
            boards.append(zones.panel)
        for viewport in self.visible_viewports:
            boards += viewport.covered()
        return boards


def grid(count: int, width: int, height: int) -> tuple[int, int]:
    """Return columns and rows for `count` viewports.

    Each is as near to `_BEST_ASPECT` as can be, with few places left empty.
    """

    def badness(columns: int) -> float:
        rows = -(-count // columns)
        aspect = (width / columns) / max(height / rows, 1e-9)
        return abs(math.log(max(aspect, 1e-9) / _BEST_ASPECT)) + 0.2 * (
            columns * rows - count
        )

    columns = min(range(1, max(count, 1) + 1), key=badness)
    return columns, max(-(-count // columns), 1)
