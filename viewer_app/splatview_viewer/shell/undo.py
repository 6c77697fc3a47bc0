"""Undo and redo: what a user changed of views and of the layout, step by step.

A view's picture depends on its state alone, and states are frozen: a step keeps fields of
them as they were before and after. Changes are seen by comparing states once in each turn
of the loop. Those that come without the user, such as a camera that follows a path, are
no steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

MAX_STEPS = 100
_JOIN_S = 1.0
"""Seconds within which moves of a camera are one step, and after which a change is not
the user's any more."""
_SETTLE = 3
"""Pictures that are drawn after a change."""
_CAMERA = frozenset({"place"})
"""The fields of a state whose changes are joined."""
_WORDS = {
    "place": "camera",
    "selection": "selection",
    "show": "way to see",
    "training": "training cameras",
    "background": "background",
    "placement": "placement",
    "scenes": "placement",
}
"""Names of fields of states, for users; others are called a setting."""


class PaneMemory(NamedTuple):
    """A pane, what it shows, and how."""

    viewport: Viewport
    key: str | None
    state: Any
    """The view's; None without one."""


class LayoutMemory(NamedTuple):
    """The panes of a user."""

    panes: tuple[PaneMemory, ...]
    active: Viewport
    maximised: bool

    @property
    def shape(self) -> tuple[Any, ...]:
        """What of it is a change of the layout: neither states nor the active pane."""
        panes = [(pane.viewport, pane.key) for pane in self.panes]
        return (tuple(panes), self.maximised)


class Undoable(Protocol):
    """A view, or a source that users change as well: `core.view.View`."""

    @property
    def state(self) -> Any: ...
    def undoable_state(self) -> Any: ...
    def restore(self, state: Any) -> None: ...


@dataclass
class ViewChange:
    """Fields of a view's state, before and after a step."""

    view: Undoable
    before: dict[str, Any]
    after: dict[str, Any]


@dataclass
class Step:
    """What one gesture changed."""

    gesture: int
    at: float
    """The time of its last change."""
    views: dict[int, ViewChange] = field(default_factory=dict)
    layout: tuple[LayoutMemory, LayoutMemory] | None = None

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(
            name for change in self.views.values() for name in change.after
        )

    @property
    def words(self) -> str:
        """Names it for users: "camera", "layout"."""
        if self.layout is not None:
            return "layout"
        names = {_WORDS.get(name, "setting") for name in self.fields}
        if "selection" in names:
            return "selection"
        return names.pop() if len(names) == 1 else "settings"


class History:
    """The steps of one user."""

    def __init__(self, user: User) -> None:
        self._user = user
        self.done: deque[Step] = deque(maxlen=MAX_STEPS)
        """The steps that can be undone, the last one last."""
        self._undone: list[Step] = []
        self._known: dict[int, tuple[Undoable, Any]] = {}
        """The views and their states of the last turn, by the views' ids."""
        self._at_press: dict[int, tuple[Undoable, Any]] = {}
        """The same, when the last drag began."""
        self._drag = -1
        """The gesture of that drag."""
        self._layout: LayoutMemory | None = None
        self._gesture = 0
        """Counts presses, keys and wheels."""
        self.touched_at = -1e9
        """The time of the user's last action."""
        self._ignored = -1
        """The gesture whose changes are those of an undo or a redo."""
        self._restoring: list[PaneMemory] = []
        """Panes whose state follows once they have a view."""

    # -- what a user asks for -----------------------------------------------------------

    def undo_reason(self) -> str | None:
        """Return why nothing can be undone now; None: something can."""
        return None if self.done else "nothing to undo"

    def redo_reason(self) -> str | None:
        """Return why nothing can be redone now; None: something can."""
        return None if self._undone else "nothing to redo"

    @property
    def undo_words(self) -> str:
        """The name of what `undo` takes back: "camera"; "" for nothing."""
        return self.done[-1].words if self.done else ""

    @property
    def redo_words(self) -> str:
        """The name of what `redo` does again; "" for nothing."""
        return self._undone[-1].words if self._undone else ""

    def undo(self) -> None:
        """Take back the last step."""
        if self.done:
            step = self.done.pop()
            self._undone.append(step)
            self._apply(step, back=True)

    def redo(self) -> None:
        """Do the step again that was taken back last."""
        if self._undone:
            step = self._undone.pop()
            self.done.append(step)
            self._apply(step, back=False)

    def _apply(self, step: Step, *, back: bool) -> None:
        self._ignored = self._gesture
        if step.layout is not None:
            before, after = step.layout
            self._restore_layout(before if back else after)
        for change in step.views.values():
            values = change.before if back else change.after
            state = replace(change.view.state, **values)
            change.view.restore(state)
        self._look()
        self._user.mark(_SETTLE)

    # -- watching ------------------------------------------------------------------------

    def begin_gesture(self, now: float) -> None:
        """Note that the user pressed something: what changes now is a new step."""
        self._gesture += 1
        self.touched_at = now

    def begin_drag(self) -> None:
        """Keep the states before a press, for `cancel_drag`."""
        self._look()
        self._at_press = dict(self._known)
        # `begin_gesture` follows.
        self._drag = self._gesture + 1

    def cancel_drag(self) -> None:
        """Return to the states before the drag that is under way."""
        self._ignored = self._gesture
        for view, state in self._at_press.values():
            _, values = _differences(view.undoable_state(), state)
            if values:
                view.restore(replace(view.state, **values))
        self._at_press = {}
        if self.done and self.done[-1].gesture == self._drag:
            self.done.pop()
        self._look()
        self._user.mark(_SETTLE)

    def note_input(self, now: float) -> None:
        """Note that the user still does something."""
        self.touched_at = now

    def watch(self, now: float) -> None:
        """Note what has changed, once in each turn of the loop. Quick if nothing has."""
        held = self._user.held
        if held.keys or held.buttons:
            self.touched_at = now
        known = self._known
        layout = self._layout
        self._restore_states()
        self._look()
        assert self._layout is not None
        is_by_user = now - self.touched_at < _JOIN_S
        if not is_by_user or self._gesture == self._ignored:
            return
        if layout is not None and layout.shape != self._layout.shape:
            self._note_layout(layout, self._layout, now)
        for key, (view, state) in self._known.items():
            previous = known.get(key)
            if previous is None or previous[1] is state:
                continue
            before, after = _differences(previous[1], state)
            if after:
                self._note_view(ViewChange(view, before, after), now)

    def _look(self) -> None:
        """Take down the states of all views, and the layout."""
        self._known = {}
        panes = []
        for viewport in self._user.layout:
            shown = viewport.view
            state = viewport.undoable_state()
            if shown is not None and state is not None:
                self._known[id(shown.view)] = shown.view, state
            panes.append(PaneMemory(viewport, viewport.key, state))
            source: Any = None if viewport.slot is None else viewport.slot.source
            if hasattr(source, "undoable_state"):
                self._known[id(source)] = source, source.undoable_state()
        layout = self._user.layout
        self._layout = LayoutMemory(tuple(panes), layout.active, layout.maximised)

    def _note_view(self, change: ViewChange, now: float) -> None:
        key = id(change.view)
        step = self._open_step(frozenset(change.after), now)
        known = step.views.get(key)
        if known is None:
            step.views[key] = change
            return
        known.before = {**change.before, **known.before}
        known.after.update(change.after)

    def _note_layout(
        self, before: LayoutMemory, after: LayoutMemory, now: float
    ) -> None:
        if any(pane.viewport.by_itself for pane in after.panes):
            # The viewer chose what is shown, not the user.
            return
        step = self._open_step(frozenset(), now)
        first = before if step.layout is None else step.layout[0]
        step.layout = first, after

    def _open_step(self, changed: frozenset[str], now: float) -> Step:
        """Return the step that a change belongs to, which may be a new one."""
        self._undone.clear()
        if self.done:
            step = self.done[-1]
            moves_on = now - step.at < _JOIN_S and step.layout is None
            moves_on &= changed == _CAMERA and step.fields == _CAMERA
            if step.gesture == self._gesture or moves_on:
                step.at = now
                return step
        step = Step(self._gesture, now)
        self.done.append(step)
        return step

    # -- the layout ----------------------------------------------------------------------

    def _restore_layout(self, memory: LayoutMemory) -> None:
        """Show the panes again that there were, each as it was."""
        self._user.layout.restore(
            [pane.viewport for pane in memory.panes], memory.active, memory.maximised
        )
        slots = self._user.catalogue.slots
        for pane in memory.panes:
            if pane.key is None or pane.key in slots:
                pane.viewport.select(pane.key)
        self._restoring = list(memory.panes)
        self._restore_states()

    def _restore_states(self) -> None:
        """Give panes that were opened again their state, once they have a view."""
        waiting = []
        for pane in self._restoring:
            if pane.viewport not in self._user.layout.all or pane.state is None:
                continue
            if pane.viewport.key != pane.key:
                continue
            shown = pane.viewport.view
            if shown is None or shown.empty:
                waiting.append(pane)
            elif isinstance(shown.view.state, type(pane.state)):
                shown.view.restore(pane.state)
                self._user.mark(_SETTLE)
        self._restoring = waiting


def _differences(before: Any, after: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields in which two states differ, of the first and of the second."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    if type(before) is not type(after):
        return old, new
    for each in fields(after):
        first = getattr(before, each.name)
        second = getattr(after, each.name)
        if first is not second and first != second:
            old[each.name] = first
            new[each.name] = second
    return old, new
