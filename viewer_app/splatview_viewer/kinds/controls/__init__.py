"""The kind of a script's own controls, which fill a section of the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind, Link

if TYPE_CHECKING:
    from splatview_ipc.control.frame import StreamFrame


class ControlsLink(Link):
    """Gives the controls of a script to those who show them."""

    def take(self, content: Any, stream: Any, frame: StreamFrame) -> bool:
        return content.take(frame)


KIND = Kind("controls", of_run=True)
LINK = ControlsLink(KIND.name)
