"""The scenes of one page that draws them by itself, side by side on its line."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.web.pane_news import PaneSide
from splatview_viewer.web.pane_scene import PageCounter, PaneScene
from splatview_viewer.web.scene_pace import ScenePace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.handed import HandedOn
    from splatview_viewer.core.screen import HandedPane
    from splatview_viewer.web.messages import SceneMessage

_MOST_PANES = 16
"""Panes whose scenes a page is sent."""


class _Wishes(NamedTuple):
    """The wishes of the thread that draws."""

    begin_count: int = 0
    """Counts how often the page has begun anew."""
    most_gaussians: int = 0
    """0: the page draws nothing by itself."""
    panes: tuple[HandedPane, ...] = ()
    is_paused: bool = False


class SceneSender:
    """Sends a page what it draws by itself.

    `begin`, `stop`, `put` and `pause` are called by the thread that draws; the rest by
    the web thread.
    """

    def __init__(
        self, wake_writer: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        """Start for a page that draws nothing.

        Args:
            wake_writer: has the page's writer look for something to send.
            wake: has the thread that draws turn.
        """
        self._wake_writer = wake_writer
        self._wake = wake
        self._wishes = _Wishes()
        self._sent_for = _Wishes()
        """What the web thread knows of that."""
        self._scenes: dict[PaneSide, PaneScene] = {}
        self._order: deque[PaneSide] = deque()
        """The scenes of panes, the one last that was served last."""
        self._counter = PageCounter()
        self._pace = ScenePace()
        self._data_left: deque[bytes] = deque()
        """What is left to send of some blocks."""

    # -- in the thread that draws ------------------------------------------------------

    def begin(self, most_gaussians: int) -> None:
        """Send a page all of its scenes anew, of so many Gaussians at most."""
        wishes = self._wishes
        self._wishes = wishes._replace(
            begin_count=wishes.begin_count + 1, most_gaussians=most_gaussians
        )
        self._wake_writer()

    def stop(self) -> None:
        """Send nothing more."""
        self._wishes = self._wishes._replace(most_gaussians=0, panes=())
        self._wake_writer()

    def pause(self, is_paused: bool) -> None:
        """Send nothing while a page is hidden."""
        self._wishes = self._wishes._replace(is_paused=is_paused)
        self._wake_writer()

    def put(self, panes: Sequence[HandedPane]) -> None:
        """Have the page draw these panes, as `SceneIntake.put`."""
        self._wishes = self._wishes._replace(panes=tuple(panes[:_MOST_PANES]))
        self._wake_writer()

    @property
    def handed_panes(self) -> set[int]:
        """The panes that the page draws by itself."""
        panes = self._wishes.panes
        return {pane.number for pane in panes if pane.handed.drawing is not None}

    # -- in the web thread -------------------------------------------------------------

    @property
    def is_amid_blocks(self) -> bool:
        """True while parts of some blocks are left to send."""
        return bool(self._data_left)

    def next(self, now: float) -> tuple[SceneMessage | bytes, ...] | None:
        """Return what to send next; None while there is nothing."""
        if self._data_left:
            return (self._data_left.popleft(),)
        self._take_wishes()
        for scene in self._scenes.values():
            messages = scene.next_news()
            if messages is not None:
                return self._first_of(messages)
        if self._wishes.is_paused or not self._pace.may_send:
            return None
        for _ in range(len(self._order)):
            self._order.rotate(-1)
            scene = self._scenes[self._order[-1]]
            messages = scene.next(self._pace, 1 / len(self._handed), now)
            if messages is not None:
                return self._first_of(messages)
        return None

    def _first_of(
        self, messages: tuple[SceneMessage | bytes, ...]
    ) -> tuple[SceneMessage | bytes]:
        """Return the first of some messages; what follows it is sent by and by."""
        first_message, *chunks = messages
        self._data_left.extend(chunk for chunk in chunks if isinstance(chunk, bytes))
        return (first_message,)

    @property
    def _handed(self) -> list[PaneScene]:
        """The scenes that are drawn; at least one for a share."""
        scenes = list(self._scenes.values())
        handed = [scene for scene in scenes if scene.handed.drawing is not None]
        return handed or scenes

    def _take_wishes(self) -> None:
        """Take over what the thread that draws wants."""
        wishes = self._wishes
        previous = self._sent_for
        if wishes is previous:
            return
        self._sent_for = wishes
        if wishes.begin_count != previous.begin_count or not wishes.most_gaussians:
            self._close_scenes(set(self._scenes))
        handed_scenes = self._wanted_scenes()
        self._close_scenes(set(self._scenes) - set(handed_scenes))
        if not wishes.most_gaussians:
            return
        for key, handed in handed_scenes.items():
            if key not in self._scenes:
                self._scenes[key] = PaneScene(
                    key,
                    self._counter,
                    wishes.most_gaussians,
                    self._wake_writer,
                    self._wake,
                )
                self._order.append(key)
            self._scenes[key].use(handed)
        if wishes.is_paused:
            for scene in self._scenes.values():
                scene.pause()

    def _wanted_scenes(self) -> dict[PaneSide, HandedOn]:
        """Return all scenes of the panes; those of panes with pictures are kept."""
        handed_scenes: dict[PaneSide, HandedOn] = {}
        for pane, handed in self._wishes.panes:
            handed_scenes[PaneSide(pane)] = handed
            second = PaneSide(pane, 1)
            if handed.second is not None:
                handed_scenes[second] = handed.second
            elif handed.drawing is None and second in self._scenes:
                handed_scenes[second] = handed
        return handed_scenes

    def _close_scenes(self, keys: set[PaneSide]) -> None:
        for key in keys:
            self._scenes.pop(key).close()
            self._order.remove(key)

    def note_taken(self, message_number: int, now: float) -> None:
        """Note what the page has taken."""
        self._pace.note_taken(message_number, now)
        for scene in self._scenes.values():
            scene.note_taken(message_number)

    def end(self) -> None:
        """Give back all that is packed for the page: it has gone. Idempotent."""
        self._close_scenes(set(self._scenes))
        self._data_left.clear()
