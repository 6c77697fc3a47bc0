"""Undo and redo: what a user changed of views and of the layout, step by step.

A view's picture depends on its state alone, and states are frozen: a step keeps fields of
them as they were before and after. Changes are seen by comparing states once in each turn
of the loop. Those that come without the user, such as a camera that follows a path, are
no steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.shell.undo_words import differences, words_of
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.undoable import Undoable
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

MAX_STEPS = 100
_JOIN_S = 1.0
"""Seconds within which moves of a camera are one step, and after which a change is not
the user's any more."""
_CAMERA = frozenset({"place"})
"""The fields of a state whose changes are joined."""


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

    def has_entry(self, key: str) -> bool:
        """Return whether a pane shows an entry."""
        return any(pane.key == key for pane in self.panes)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Return the panes and their entries, without states or the active pane."""
        panes = [(pane.viewport, pane.key) for pane in self.panes]
        return (tuple(panes), self.maximised)


class Action(NamedTuple):
    """Something that was done to the list of streams, and how it is taken back."""

    title: str
    """Names it for users."""
    undo: Callable[[], object]
    redo: Callable[[], object]


@dataclass
class ViewChange:
    """Fields of a view's state, before and after a step."""

    view: Undoable
    old_values: dict[str, Any]
    new_values: dict[str, Any]


@dataclass
class UndoStep:
    """The changes of one gesture."""

    gesture: int
    changed_at: float
    """The time of its last change."""
    views: dict[int, ViewChange] = field(default_factory=dict)
    layout: tuple[LayoutMemory, LayoutMemory] | None = None
    actions: list[Action] = field(default_factory=list)

    def is_needed(self) -> bool:
        """Return whether undoing it changes anything."""
        return bool(self.views or self.actions) or self.layout is not None

    @property
    def fields(self) -> frozenset[str]:
        return frozenset().union(*(c.new_values for c in self.views.values()))

    @property
    def title(self) -> str:
        """Names it for users: "camera", "layout"."""
        if self.actions:
            return self.actions[0].title
        if self.layout is not None:
            return "layout"
        return words_of(
            (change.old_values, change.new_values) for change in self.views.values()
        )


class History:
    """The steps of one user."""

    def __init__(self, user: User) -> None:
        self._user = user
        self.done: deque[UndoStep] = deque(maxlen=MAX_STEPS)
        """The steps that can be undone, the last one last."""
        self._undone: list[UndoStep] = []
        self._known_states: dict[int, tuple[Undoable, Any]] = {}
        """The views and their states of the last turn, by the views' ids."""
        self._at_press: dict[int, tuple[Undoable, Any]] = {}
        """The same, when the last drag began."""
        self._drag = -1
        """The gesture of that drag."""
        self._layout: LayoutMemory | None = None
        self.gesture = 0
        """Counts presses, keys and wheels."""
        self.touched_at = -1e9
        """The time of the user's last action."""
        self._has_command = False
        """The user asked for a command since the last turn."""
        self._ignored = -1
        """The gesture whose changes are those of an undo or a redo."""
        self._restoring: list[PaneMemory] = []
        """Panes whose state follows once they have a view."""

    # -- what a user asks for -----------------------------------------------------------

    def undo_reason(self) -> str | None:
        """Return why nothing can be undone now; None: something can."""
        if self.done:
            return None
        return "nothing to undo"

    def redo_reason(self) -> str | None:
        """Return why nothing can be redone now; None: something can."""
        if self._undone:
            return None
        return "nothing to redo"

    @property
    def undo_words(self) -> str:
        """The name of what `undo` takes back: "camera"; "" for nothing."""
        if not self.done:
            return ""
        return self.done[-1].title

    @property
    def redo_words(self) -> str:
        """The name of what `redo` does again; "" for nothing."""
        if not self._undone:
            return ""
        return self._undone[-1].title

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

    def offers(self, gesture: int) -> bool:
        """Return whether `undo` takes back what a gesture did, and nothing else."""
        return bool(self.done) and self.done[-1].gesture == gesture

    def note_action(self, action: Action) -> None:
        """Have undo take back something that no state shows."""
        step = self._open_step(frozenset(), self.touched_at)
        step.actions.append(action)

    def forget_entry(self, key: str) -> None:
        """Forget that panes showed an entry, which cannot be shown after all."""
        for step in (*self.done, *self._undone):
            if step.layout is not None and step.layout[1].has_entry(key):
                step.layout = None
        self.done = deque(filter(UndoStep.is_needed, self.done), MAX_STEPS)
        self._undone = list(filter(UndoStep.is_needed, self._undone))
        self._take_down()

    def _apply(self, step: UndoStep, *, back: bool) -> None:
        self._ignored = self.gesture
        for action in step.actions:
            if back:
                action.undo()
            else:
                action.redo()
        if step.layout is not None:
            old_layout, new_layout = step.layout
            if back:
                self._restore_layout(old_layout)
            else:
                self._restore_layout(new_layout)
        for change in step.views.values():
            values = change.new_values
            if back:
                values = change.old_values
            state = replace(change.view.state, **values)
            change.view.restore(state)
        self._take_down()
        self._user.mark(SETTLE)

    # -- watching ------------------------------------------------------------------------

    def begin_gesture(self, now: float) -> None:
        """Note that the user pressed something: what changes now is a new step."""
        self.gesture += 1
        self.touched_at = now

    def begin_drag(self) -> None:
        """Keep the states before a press, for `cancel_drag`."""
        self._take_down()
        self._at_press = dict(self._known_states)
        # `begin_gesture` follows.
        self._drag = self.gesture + 1

    def cancel_drag(self) -> None:
        """Return to the states before the drag that is under way."""
        self._ignored = self.gesture
        for view, state in self._at_press.values():
            _, values = differences(view.undoable_state(), state)
            if values:
                view.restore(replace(view.state, **values))
        self._at_press = {}
        if self.done and self.done[-1].gesture == self._drag:
            self.done.pop()
        self._take_down()
        self._user.mark(SETTLE)

    def note_input(self, now: float) -> None:
        """Note that the user still does something."""
        self.touched_at = now

    def note_command(self) -> None:
        """Note that a command of the user's is executed before the next `watch`.

        On a busy machine that may be long after the press that asked for it.
        """
        self._has_command = True

    def watch(self, now: float) -> None:
        """Note what has changed, once in each turn of the loop. Quick if nothing has."""
        input_held = self._user.held
        if input_held.keys or input_held.buttons or self._has_command:
            self.touched_at = now
            self._has_command = False
        known_states = self._known_states
        layout = self._layout
        self._restore_states()
        self._take_down()
        assert self._layout is not None
        is_by_user = now - self.touched_at < _JOIN_S
        if not is_by_user or self.gesture == self._ignored:
            return
        if layout is not None and layout.shape != self._layout.shape:
            self._note_layout(layout, self._layout, now)
        for key, (view, state) in self._known_states.items():
            previous = known_states.get(key)
            if previous is None or previous[1] is state:
                continue
            old_values, new_values = differences(previous[1], state)
            if new_values:
                self._note_view(ViewChange(view, old_values, new_values), now)

    def _take_down(self) -> None:
        """Take down the states of all views, and the layout."""
        self._known_states = {}
        panes = []
        for viewport in self._user.layout:
            pane_view = viewport.view
            state = viewport.undoable_state()
            if pane_view is not None and state is not None:
                self._known_states[id(pane_view.view)] = pane_view.view, state
            for view_part in viewport.undoable_parts():
                self._known_states[id(view_part)] = (
                    view_part,
                    view_part.undoable_state(),
                )
            panes.append(PaneMemory(viewport, viewport.key, state))
            slot = viewport.slot
            source: Any = None
            if slot is not None:
                source = slot.source
            if hasattr(source, "undoable_state"):
                self._known_states[id(source)] = source, source.undoable_state()
        layout = self._user.layout
        self._layout = LayoutMemory(tuple(panes), layout.active, layout.maximised)

    def _note_view(self, change: ViewChange, now: float) -> None:
        key = id(change.view)
        step = self._open_step(frozenset(change.new_values), now)
        earlier = step.views.get(key)
        if earlier is None:
            step.views[key] = change
            return
        earlier.old_values = {**change.old_values, **earlier.old_values}
        earlier.new_values.update(change.new_values)

    def _note_layout(
        self, old_layout: LayoutMemory, new_layout: LayoutMemory, now: float
    ) -> None:
        keys = {pane.viewport: pane.key for pane in old_layout.panes}
        for pane in new_layout.panes:
            is_new = keys.get(pane.viewport, pane.key) != pane.key
            if is_new and pane.viewport.by_itself:
                # The viewer chose what is shown, not the user.
                return
        step = self._open_step(frozenset(), now)
        if step.layout is not None:
            old_layout, _ = step.layout
        step.layout = old_layout, new_layout

    def _open_step(self, changed: frozenset[str], now: float) -> UndoStep:
        """Return the step that a change belongs to, which may be a new one."""
        self._undone.clear()
        if self.done:
            step = self.done[-1]
            moves_on = now - step.changed_at < _JOIN_S and step.layout is None
            moves_on &= changed == _CAMERA and step.fields == _CAMERA
            if step.gesture == self.gesture or moves_on:
                step.changed_at = now
                return step
        step = UndoStep(self.gesture, now)
        self.done.append(step)
        return step

    # -- the layout ----------------------------------------------------------------------

    def _restore_layout(self, memory: LayoutMemory) -> None:
        """Show the panes again that there were, each as it was."""
        slots = self._user.catalogue.slots
        for pane in memory.panes:
            if pane.key is None or pane.key in slots:
                pane.viewport.select(pane.key)
        self._user.layout.restore(
            [pane.viewport for pane in memory.panes], memory.active, memory.maximised
        )
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
            pane_view = pane.viewport.view
            if pane_view is None or pane_view.empty:
                waiting.append(pane)
            elif isinstance(pane_view.view.state, type(pane.state)):
                pane_view.view.restore(pane.state)
                self._user.mark(SETTLE)
        self._restoring = waiting
