"""Going back through what was recorded of a scene: the bar at the lower edge of the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from splatview_viewer.core.events import Key
from splatview_viewer.core.view import KeyHelp
from splatview_viewer.kinds.gaussians.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.recording.player import Player

HEIGHT = 30.0
"""Points."""
_SHOWN = "history"
"""What is remembered: whether the bar is shown."""


class History(Tool):
    """Has the view's scene be an earlier one. Whoever looks at the scene as well sees that too."""

    name: ClassVar[str] = "history"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("History", "Comma, full stop", "The snapshot before, after"),
        KeyHelp("History", "End", "What comes live"),
        KeyHelp("History", "T", "Show or hide the bar"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._seen: tuple[object, ...] | None = None
        self.track: Rect | None = None
        """Where the slider was drawn, from the first snapshot to the last."""

    @property
    def player(self) -> Player | None:
        """What there is to go back through; None while there is nothing."""
        player = self.view.content.player
        return player if player is not None and len(player.recording) > 1 else None

    @property
    def at_hand(self) -> bool:
        return self.player is not None

    @property
    def shown(self) -> bool:
        """Whether the bar is there: it can be hidden while nothing recorded is shown."""
        player = self.player
        if player is None:
            return False
        return self.view.desk.memo.get(_SHOWN) is not False or (player.position is not None and player.has_live)

    def handle(self, event: Event, rect: Rect) -> bool | None:
        player = self.player
        if player is None or not isinstance(event, Key) or not event.pressed or event.mods:
            return None
        match event.name:
            case "comma":
                player.move(-1)
            case "period":
                player.move(1)
            case "end":
                player.live()
            case "t" if not event.repeat:
                self.view.desk.memo.put(_SHOWN, None if self.view.desk.memo.get(_SHOWN) is False else False)
            case _:
                return None
        return True

    def tick(self, now: float) -> bool:
        player = self.view.content.player
        seen = player and (player, player.position, player.playing, player.recording.changes)
        changed, self._seen = seen != self._seen, seen
        if changed and player is not None and player.playing:
            self.view.in_motion()
        return changed

    def bar_height(self) -> float:
        return HEIGHT if self.shown else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        player = self.player
        if player is None or not self.shown:
            return False
        from splatview_viewer.kinds.gaussians.history_bar import draw_bar

        changed, self.track = draw_bar(f"history {id(self)}", player, rect, scale)
        if changed and player.position is not None:
            self.view.in_motion()
        return changed
