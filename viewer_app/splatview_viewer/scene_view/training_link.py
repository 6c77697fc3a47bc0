"""The link of a scene to the cameras that it is trained with."""

from __future__ import annotations

from typing import Any

from splatview_viewer.core.kind import Link


class CamerasLink(Link):
    """Gives views of a scene the cameras that it is trained with."""

    def use(self, view: Any, content: Any) -> None:
        view.tools["frustums"].use(content)
