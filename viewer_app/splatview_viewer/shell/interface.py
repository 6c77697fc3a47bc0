"""The interface around one user's pictures: its zones, drawn one after the other."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Literal

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import BINARY, DECIMAL, use_byte_units
from splatview_viewer.core.view import Info
from splatview_viewer.shell import footer, sections, top_bar
from splatview_viewer.shell.about import About
from splatview_viewer.shell.interface_state import InterfaceState
from splatview_viewer.shell.key_list import draw_key_list
from splatview_viewer.shell.key_sheet import KeySheet
from splatview_viewer.shell.known_settings import KnownSettings
from splatview_viewer.shell.overlay import draw_overlay, draw_readout
from splatview_viewer.shell.palette import Palette
from splatview_viewer.shell.run_state import run_state
from splatview_viewer.shell.runs import Groups
from splatview_viewer.shell.script_sections import ScriptSections
from splatview_viewer.shell.sheet import SheetDrag, draw_sheet, head_of
from splatview_viewer.shell.sparklines import Sparklines
from splatview_viewer.shell.stream_list import Rows, draw_list
from splatview_viewer.shell.strips import draw_strips
from splatview_viewer.shell.surface import Surface
from splatview_viewer.shell.time_area import draw_time_area
from splatview_viewer.shell.toasts import Toasts
from splatview_viewer.shell.visit import draw_bar
from splatview_viewer.shell.zones import (
    PANEL_WIDTH,
    PANEL_WIDTHS,
    Zones,
    edge_of,
    place,
)
from splatview_viewer.ui import controls, focus, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.recovery import Faults
from splatview_viewer.ui.widgets import wrapped
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Section, Visit
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport

_BOARDS = (
    "top bar",
    "streams",
    "sparks",
    "sheet",
    "tabs",
    "sections",
    "footer",
    "edge",
    "strip",
    "time",
)
"""The boards in the order of the keyboard; those over the pictures come last."""
_EDGE_STEP = 8.0
"""Points by which an arrow moves the panel's edge."""


class Interface:
    """Draws the zones of one user's screen, and remembers where they are."""

    def __init__(self, scale: float = 1.0) -> None:
        self.surface = Surface(scale)
        self.state = InterfaceState()
        self.faults = Faults("interface")
        """Faults of its zones."""
        self._failed_zones: list[str] = []
        """Those of the last frame, to be told to the user."""
        self.surface.focus.order = _BOARDS
        self.settings = KnownSettings()
        self.scripts = ScriptSections()
        self.palette = Palette()
        self.groups = Groups()
        """The runs of the list."""
        self.rows = Rows()
        """Those of the list."""
        self.sparklines = Sparklines()
        self.footer = footer.Footer()
        self.toasts = Toasts()
        self.about = About()
        self.key_sheet = KeySheet()
        self.has_readout = False
        """The last frame shows the value under the pointer."""
        self._covered: tuple[int, str] | None = None
        """The list and the readout whose letters imgui can draw."""
        self._states: list[str] = []
        """Of the runs, in words."""
        self.sheet = SheetDrag()
        self.zones = place((1, 1), scale, self.state.wishes())

    @property
    def surroundings(self) -> Literal["desktop", "phone", "none"]:
        """Return the form of the interface around the pictures, as views ask for it."""
        if self.state.bare:
            return "none"
        if self.zones.form == "phone":
            return "phone"
        return "desktop"

    def place_zones(self, size: tuple[int, int], scale: float) -> Zones:
        """Place the zones on a screen of so many pixels; return them."""
        zones = place(size, scale, self.state.wishes())
        if zones is not self.zones:
            self.zones = zones
            self.surface.input.grips = [head_of(zones)]
        return zones

    def use_units(self) -> None:
        """Tell sizes in the units that its user chose, from now on."""
        use_byte_units(DECIMAL if self.state.decimal_bytes else BINARY)

    def have_states_changed(self, user: User) -> bool:
        """Return whether runs are in other states than at the last call."""
        if self.state.bare:
            return False
        groups = self.groups.update(user)
        now = time.time()
        states = [run_state(g.lead, now).phrase for g in groups if g.is_run]
        previous = self._states
        self._states = states
        return states != previous

    def draw(
        self,
        user: User,
        size: tuple[int, int],
        *,
        keeps: bool = False,
    ) -> bool:
        """Draw a frame that `surface.render` puts over a user's pictures.

        Commands go to `user.do`.

        Args:
            user: whose pictures they are.
            size: width and height of the framebuffer of the user's screen.
            keeps: boards may keep what was drawn in them (`KeptBoards`).

        Returns:
            True when a setting changed: the picture has to be drawn again.
        """
        scale = user.screen.state.scale
        self.use_units()
        visit = self._take_visit(user)
        section_list: list[Section] = []
        info = Info()
        if not self.state.bare:
            section_list, info = user.layout.active.describe(self.state.tab)
        self.surface.light = user.state.light
        self.surface.touch = self.zones.form == "phone"
        self.has_readout = bool(info.readout)
        self._cover_names(user, info.readout)
        changed = False
        self._failed_zones.clear()
        with self.surface.frame(size, scale, keeps=keeps):
            self.place_zones(self.surface.size, scale)
            for viewport in user.layout.visible_viewports:
                changed |= self._zone("overlay", self._draw_over, user, viewport)
            self._zone("messages", self.toasts.draw, user, scale)
            if self.state.bare:
                return changed
            changed |= self._draw_zones(user, section_list, info, visit)
            self._draw_above_zones(user)
        for name in self._failed_zones:
            reason = self.faults.reason(name)
            user.catalogue.notice(f"drawing the {name} failed: {reason}")
        text = self.surface.input.copied_text()
        if text is not None:
            user.do(user.screen.desktop.copy, text)
        return changed

    def _draw_zones(
        self,
        user: User,
        section_list: list[Section],
        info: Info,
        visit: Visit | None,
    ) -> bool:
        """Draw all zones around the pictures; return True to draw the pictures again."""
        zones = self.zones
        scale = user.screen.state.scale
        self._zone("strips", draw_strips, user, info, scale)
        self._zone("readout", draw_readout, info, user.layout.active.rect, scale)
        with controls.tips_in(zones.pictures(scale)):
            changed = self._zone("time area", draw_time_area, user, zones.time, scale)
        if zones.form == "phone":
            changed |= self._zone(
                "panel", draw_sheet, user, section_list, info, visit, self._draw_part
            )
        elif zones.panel.width:
            changed |= self._zone("panel", self._draw_panel, user, section_list, info)
        if visit is not None:
            changed |= self._zone("top bar", draw_bar, visit, zones.top, scale)
        else:
            with controls.tips_in(zones.pictures(scale)):
                self._zone("top bar", top_bar.draw, user, info, zones.top, scale)
        return changed

    def _draw_above_zones(self, user: User) -> None:
        """Draw what lies over the zones: a long press, popups, cards, the palette."""
        scale = user.screen.state.scale
        # Popups that are open name theirs.
        self.surface.input.lists = ()
        self._zone("ring", _draw_ring, self.surface.input.ring, scale)
        self._zone("popups", self.footer.draw_popups, user)
        self._zone("about", self.about.draw, user)
        self._zone("palette", self.palette.draw, user)
        if self.zones.form == "phone":
            self._zone("keys", self.key_sheet.draw, user)
        elif user.state.help:
            self._zone("keys", draw_key_list, user, self.zones.panes, scale)

    def _cover_names(self, user: User, readout: str) -> None:
        """Have imgui draw the letters of all names and of the readout itself."""
        changes = user.catalogue.list_changes
        if (changes, readout) == self._covered:
            return
        self._covered = (changes, readout)
        letters = [readout]
        for entry in user.state.entries:
            letters += (entry.name, entry.group)
        self.surface.cover(letters)

    def _take_visit(self, user: User) -> Visit | None:
        """Return what a phone shows in place of all else, and place the zones for it."""
        visit = None
        if self.surroundings == "phone":
            visit = user.layout.active.visit()
        if self.state.visits != (visit is not None):
            self.state.visits = visit is not None
            # The ways to compare are seen at once.
            self.state.panel_open |= self.state.visits
            user.mark(SETTLE)
        return visit

    def _zone(self, name: str, draw: Callable[..., object], *values: object) -> bool:
        """Draw a zone, and return its result; False where it failed."""
        with self.faults.guard(name):
            return bool(draw(*values))
        self._failed_zones.append(name)
        return False

    def _draw_part(
        self, name: str, draw: Callable[..., object], *values: object
    ) -> bool:
        """Draw a part of the panel; one that fails is followed by its reason."""
        changed = False
        with self.faults.guard(name):
            changed = bool(draw(*values))
        reason = self.faults.reason(name)
        if reason:
            wrapped(f"The {name} failed: {reason}", theme.FAULT)
        return changed

    def _draw_over(self, user: User, viewport: Viewport) -> bool:
        """Draw what lies over the picture of a viewport, and nothing beside it."""
        scale = user.screen.state.scale
        rect = viewport.rect
        low = ImVec2(rect.x, rect.y)
        high = ImVec2(rect.x + rect.width, rect.y + rect.height)
        background = imgui.get_background_draw_list()
        foreground = imgui.get_foreground_draw_list()
        background.push_clip_rect(low, high, True)
        foreground.push_clip_rect(low, high, True)
        try:
            changed = viewport.draw_over(scale)
        finally:
            foreground.pop_clip_rect()
            background.pop_clip_rect()
        draw_overlay(user.state, viewport, scale)
        return changed

    # -- the panel ---------------------------------------------------------------------

    def _draw_panel(self, user: User, section_list: list[Section], info: Info) -> bool:
        """Draw the zones of the panel, from above."""
        scale = user.screen.state.scale
        zones = self.zones
        changed = False
        pad = (12 * scale, 0)
        with controls.tips_beside(zones.panel.x + zones.panel.width):
            with _panel_board(
                "streams", zones.streams, (0, 4 * scale), scroll=True
            ) as opened:
                if opened and zones.streams.height:
                    self._draw_part("list of streams", draw_list, user)
            with _panel_board(
                "sparks", zones.sparks, (12 * scale, 6 * scale), scroll=True
            ) as opened:
                if opened and zones.sparks.height:
                    _draw_line(zones.sparks)
                    self._draw_part("curves of the run", self.sparklines.draw, user)
            with _panel_board("tabs", zones.tabs, (8 * scale, 0)) as opened:
                if opened:
                    _draw_line(zones.tabs)
                    self._draw_part("tabs", sections.draw_tabs, user, zones.form)
            name = f"sections {self.state.tab}"
            with _panel_board(name, zones.sections, pad, scroll=True) as opened:
                if opened:
                    _draw_line(zones.sections)
                    changed = self._draw_part(
                        "sections",
                        sections.draw_sections,
                        user,
                        section_list,
                        info,
                        self._draw_part,
                    )
            with _panel_board(
                "footer", zones.footer, (8 * scale, 0), theme.BAR
            ) as opened:
                if opened:
                    _draw_line(zones.footer)
                    self._draw_part(
                        "footer", self.footer.draw, user, zones.footer, scale
                    )
        if zones.form == "desktop":
            self._zone("edge", self._draw_edge, user)
        return changed

    def _draw_edge(self, user: User) -> None:
        """Draw the panel's edge: dragged it changes its width, a double click ends that."""
        scale = user.screen.state.scale
        rect = edge_of(self.zones, scale)
        with _panel_board("edge", rect, color=theme.CLEAR) as opened:
            if not opened:
                return
            edge = controls.item("edge", rect.width, rect.height)
            if edge.hovered or edge.is_held:
                imgui.set_mouse_cursor(imgui.MouseCursor_.resize_ew)
            width = self.state.panel_width
            if edge.hovered and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
                width = PANEL_WIDTH
            elif edge.is_held and imgui.is_mouse_down(imgui.MouseButton_.left):
                width = (imgui.get_mouse_pos().x - rect.width / 2) / scale
            width += focus.arrow_steps() * _EDGE_STEP
            width = min(max(width, PANEL_WIDTHS[0]), PANEL_WIDTHS[1])
            if width != self.state.panel_width:
                user.do(partial(user.set_panel_width, width))
            color = theme.DOWN
            if edge.is_held:
                color = theme.ACCENT
            draw = imgui.get_window_draw_list()
            middle = rect.y + rect.height / 2
            x = rect.x - 3 * scale
            draw.push_clip_rect_full_screen()
            draw.add_rect_filled(
                ImVec2(rect.x - max(round(scale), 1), rect.y),
                ImVec2(rect.x, rect.y + rect.height),
                theme.u32(theme.LINE),
            )
            draw.add_rect_filled(
                ImVec2(x, middle - 22 * scale),
                ImVec2(x + 3 * scale, middle + 22 * scale),
                theme.u32(color),
                2 * scale,
            )
            draw.pop_clip_rect()


def _draw_line(rect: Rect) -> None:
    """Draw the line above a zone of the panel, inside its board."""
    if rect.height:
        right = ImVec2(rect.x + rect.width, rect.y)
        draw = imgui.get_window_draw_list()
        draw.push_clip_rect_full_screen()
        draw.add_line(ImVec2(rect.x, rect.y), right, theme.u32(theme.LINE))
        draw.pop_clip_rect()


_panel_board = partial(board, raised=True, stays=True)
_RING_RADIUS = 28.0
"""Points of the ring around a finger, which does not cover it."""


def _draw_ring(press: tuple[float, float, float] | None, scale: float) -> None:
    """Draw how far a long press is, around the finger.

    press: x, y and the share of its time that is over; None for none.
    """
    if press is None:
        return
    x, y, share = press
    draw = imgui.get_foreground_draw_list()
    start = -math.pi / 2
    draw.path_arc_to(
        ImVec2(x, y), _RING_RADIUS * scale, start, start + share * math.tau
    )
    draw.path_stroke(theme.u32(theme.ACCENT), 3 * scale)
