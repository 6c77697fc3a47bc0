"""One entry of the list with what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.workspace.catalogue import ViewportLike
    from splatview_viewer.workspace.sources import ValueSource


class Slot:
    """An entry of the list, the source of its values, and the views that were made of it."""

    def __init__(self, entry: Entry, source: ValueSource) -> None:
        self.entry = entry
        self.source = source
        self.views: dict[ViewportLike | None, ShownView] = {}
        """The view of each viewport; all share their data. The view of None is the last
        one, kept after its viewport closed."""
        self.view_kind = ""
        """The kind of entry that the views were made for."""
        self.next_feed = 0.0
        """Time from which on the views may take another value."""
        self.missed = 0
        """Attempts in a row that brought nothing although something was announced."""
        self.logged_fault = ""

    @property
    def view(self) -> ShownView | None:
        """Any view of this entry, for calls that affect the shared data."""
        return next(iter(self.views.values()), None)

    @property
    def content(self) -> Any:
        """The data that its views share; None before there is a view."""
        view = self.view
        if view is None:
            return None
        return view.content

    def close_views(self) -> None:
        for view in self.views.values():
            view.close()
        self.views.clear()
