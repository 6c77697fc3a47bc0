"""Ways to see the Gaussians, the section "Show": colours, depth and others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_viewer.core.view import Section
from splatview_viewer.kinds.gaussians.state import SHOWS, GaussianState, Show
from splatview_viewer.scene import color_maps
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import choices
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.color_field import draw_color
from splatview_viewer.ui.legend import draw_legend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView

_SCALES = 0.05, 3.0
_POINT_SIZES = 1.0, 12.0
_SAME_COLOR = 1e-4
_TITLES: dict[Show, str] = {key: show.title for key, show in SHOWS.items()}
_TIPS: dict[Show, str] = {key: show.tip for key, show in SHOWS.items()}
_MODES = {"scene": "As trained", "classic": "Classic", "antialiased": "Antialiased"}


class LookTool(Tool["GaussianView"]):
    """Changes what the view shows of the scene, and draws the legend of numbers."""

    name: ClassVar[str] = "look"
    view: GaussianView

    def sections(self) -> Sequence[Section]:
        return [Section("Show", self._draw_controls, opened=True, reset=self._reset)]

    def details(self) -> Sequence[str]:
        view = self.view
        low, high = view.number_range
        range_name = SHOWS[view.state.show].range_name
        if range_name and high > 0:
            return [f"{range_name} {low:.3g} to {high:.3g}"]
        return []

    @property
    def has_legend(self) -> bool:
        """True if numbers are shown by colours, whose legend lies over the picture."""
        view = self.view
        is_drawn = view.picture.source is not None or view.is_handed
        if not SHOWS[view.state.show].is_mapped or not is_drawn:
            return False
        low, high = view.number_range
        return high > low

    def draw_over(self, rect: Rect, scale: float) -> bool:
        view = self.view
        if not self.has_legend:
            return False
        low, high = view.number_range
        show_facts = SHOWS[view.state.show]
        labels = show_facts.labels((low, (low + high) / 2, high))
        above_bars = view.tools.above_bars(rect)
        draw_legend(show_facts.legend, view.state.color_map, labels, above_bars, scale)
        return False

    def _reset(self) -> None:
        """Show the scene as at first: where it is seen from and what of it stays."""
        state = self.view.state
        self.view.state = GaussianState(
            place=state.place,
            selection=state.selection,
            chosen=state.chosen,
            training=state.training,
        )

    # -- controls ------------------------------------------------------------------

    def _draw_controls(self) -> None:
        """Draw the controls, and take the state as the user edited it."""
        view = self.view
        state = self._draw_show(view.state)
        if SHOWS[state.show].by_density:
            state = self._draw_mode(state)
        state = self._draw_sh_degree(state)
        state = self._draw_size(state)
        if state.show != "alpha":
            state = self._draw_background(state)
        view.state = self._draw_smooth(state)

    def _draw_smooth(self, state: GaussianState) -> GaussianState:
        """Draw whether the last picture may be moved along with the camera."""
        tip = (
            "While the camera moves and the GPU has no time for a new picture, the "
            "last one is moved along.\n"
            "Once the camera rests, and in screenshots, the scene itself is drawn."
        )
        reason = None
        if not self.view.data.renderer.reads_gpu:
            reason = "only where CUDA draws"
        smooth = ui.check("Smooth motion", tip, state.smooth, reason=reason)
        return _edited(state, smooth=smooth)

    def _draw_show(self, state: GaussianState) -> GaussianState:
        """Draw the ways to see it, and how numbers become colours."""
        show: Show = choices.grid("Show", state.show, _TITLES, tips=_TIPS)
        state = _edited(state, show=show)
        if SHOWS[show].is_mapped:
            tip = "Colours that stand for numbers"
            name = ui.choice("Colour map", tip, state.color_map, color_maps.NAMES)
            state = _edited(state, color_map=name)
        automatic = self.view.measured_range
        if show == "depth":
            tip = "The depths at both ends of the colour map"
            depths = ui.value_range(tip, state.depth_range, automatic)
            return _edited(state, depth_range=depths)
        if show == "overdraw":
            tip = "The numbers of Gaussians at both ends of the colour map"
            counts = ui.value_range(tip, state.overdraw_range, automatic)
            return _edited(state, overdraw_range=counts)
        return state

    def _draw_mode(self, state: GaussianState) -> GaussianState:
        tip = "Antialiased: small Gaussians keep their opacity (Mip-Splatting)"
        return _edited(state, mode=ui.choice("Rasterize", tip, state.mode, _MODES))

    def _draw_sh_degree(self, state: GaussianState) -> GaussianState:
        summary = self.view.data.summary
        if summary is None or not SHOWS[state.show].has_own_colors:
            return state
        stored = summary.stored_sh_degree
        if not stored:
            return state
        drawn = summary.drawn_sh_degree
        if state.sh_degree is None:
            chosen_degree = drawn
        else:
            chosen_degree = state.sh_degree
        degree = ui.segments(
            "SH degree",
            "Spherical harmonics, the colour by direction: up to this degree.\n"
            f"{drawn} is as trained.",
            min(chosen_degree, stored),
            {degree: str(degree) for degree in range(stored + 1)},
        )
        if degree == drawn:
            return _edited(state, sh_degree=None)
        return _edited(state, sh_degree=degree)

    def _draw_size(self, state: GaussianState) -> GaussianState:
        if state.show == "points":
            point_px = ui.slider(
                "Point size",
                "Diameter of a point on the screen",
                state.point_px,
                _POINT_SIZES,
                "%.1f points",
                reset=3.0,
            )
            return _edited(state, point_px=point_px)
        scale = ui.slider(
            "Scale",
            "Factor on the size of all Gaussians",
            state.scale,
            _SCALES,
            "%.2f \u00d7",
            reset=1.0,
        )
        return _edited(state, scale=scale)

    def _draw_background(self, state: GaussianState) -> GaussianState:
        background = self.view.background
        color = draw_color("Background", "Colour behind the scene", background)
        differences = [abs(a - b) for a, b in zip(color, background, strict=True)]
        if max(differences) > _SAME_COLOR:
            return _edited(state, background=color)
        return state


def _edited(state: GaussianState, **fields: Any) -> GaussianState:
    """Return a state with these fields: the state itself where it has them already.

    That is so in most frames, and needs no copy.
    """
    if all(getattr(state, name) == value for name, value in fields.items()):
        return state
    return replace(state, **fields)
