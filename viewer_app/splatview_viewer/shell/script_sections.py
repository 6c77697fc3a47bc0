"""The sections of the panel for the controls of the scripts whose streams are shown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from splatview_ipc.system.terminal import printable
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.controls.panel import ControlsPanel
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import wrapped

if TYPE_CHECKING:
    from splatview_viewer.core.view import Tab
    from splatview_viewer.kinds.controls.content import ScriptControls
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.script_controls import RunControls

TITLE = "Controls"
_TAB: Tab = "data"
_MAX_NAMES = 32
"""Names of runs of which the closed folders are remembered."""


class ScriptSections:
    """One user's sections of scripts' controls."""

    def __init__(self) -> None:
        self._panels: WeakKeyDictionary[ScriptControls, ControlsPanel] = (
            WeakKeyDictionary()
        )
        self._closed: dict[str, set[str]] = {}
        """The folders that are closed, by the name of the run: also in its next run."""

    def sections(self, viewport: Viewport, tab: Tab) -> list[Section]:
        """Return the sections of a tab for the controls of what a viewport shows."""
        if tab != _TAB:
            return []
        shown = viewport.user.catalogue.script_controls.controls_beside(viewport)
        sections = []
        for number, controls in enumerate(shown, start=1):
            if not controls.content.controls and not controls.fault:
                continue
            title = TITLE
            if len(shown) > 1:
                title = f"{TITLE} {number}"
            state = printable(controls.run_name)
            if controls.content.has_ended:
                state = f"{state}, ended"
            section = Section(
                title,
                partial(self._draw, controls),
                opened=True,
                tip="Controls that the script has made",
                tab=_TAB,
                state=state,
                run=controls.run_name,
            )
            sections.append(section)
        return sections

    def _draw(self, controls: RunControls) -> None:
        if controls.fault:
            wrapped(controls.fault, theme.FAULT)
        self._panel_of(controls).draw()

    def _panel_of(self, controls: RunControls) -> ControlsPanel:
        content = controls.content
        panel = self._panels.get(content)
        if panel is None:
            closed = self._closed.setdefault(controls.run_name, set())
            if len(self._closed) > _MAX_NAMES:
                del self._closed[next(iter(self._closed))]
            panel = ControlsPanel(content, closed)
            self._panels[content] = panel
        return panel
