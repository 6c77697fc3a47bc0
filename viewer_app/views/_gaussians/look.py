"""What is drawn of the Gaussians: colours, depth and other ways to see them. The panel's part "View"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from viewer_app.views._gaussians.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence


class Look(Tool):
    """Steers the view's settings."""

    name: ClassVar[str] = "look"

    def panel(self) -> bool:
        """The controls; True when a setting changed."""
        from viewer_app import widgets as ui

        view = self.view
        s, before = view.settings, replace(view.settings)
        s.show = ui.choice("Show", s.show, {"color": "Colour", "depth": "Depth", "alpha": "Alpha"})
        s.mode = ui.choice("Mode", s.mode, {"scene": "As trained", "classic": "Classic",
                                            "antialiased": "Antialiased"})
        stored = view.content.facts.stored_sh_degree if view.content.facts is not None else 0
        if stored:
            degrees: dict[int | None, str] = {None: "As trained"}
            s.sh_degree = ui.choice("SH degree", s.sh_degree, degrees | {d: f"Up to {d}" for d in range(stored + 1)})
        color = ui.color("Background", view.background)
        if max(abs(a - b) for a, b in zip(color, view.background, strict=True)) > 1e-4:
            s.background = color
        return before != s

    def details(self) -> Sequence[str]:
        low, high = self.view.picture.depth.range
        if self.view.settings.show == "depth" and high > 0:
            return [f"depth {low:.3g} to {high:.3g}"]
        return []
