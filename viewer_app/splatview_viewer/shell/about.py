"""The card about the viewer: versions, what draws, and the licence."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_ipc.control.limits import VERSION
from splatview_viewer.ui import controls, lettering, theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User

_POPUP = "about"
_WIDTH = 440.0
_PAD = 20.0
_LABEL_WIDTH = 100.0
_BUTTON = 96.0
_LICENCE = "Apache-2.0"
_PACKAGES = {"torch": "PyTorch", "gsplat": "gsplat", "imgui-bundle": "Dear ImGui"}
"""The packages whose versions are told, by their names on the package index."""


class AboutRow(NamedTuple):
    """A row of the card."""

    label: str
    text: str


def rows_of(user: User) -> list[AboutRow]:
    """Return what the card tells."""
    rows = [AboutRow("Viewer", f"splatview {VERSION}"), AboutRow("Licence", _LICENCE)]
    rows += [
        AboutRow(name, _version_of(package)) for package, name in _PACKAGES.items()
    ]
    graphics = user.screen.ctx.info
    rows += [
        AboutRow("Python", f"{platform.python_version()}, {platform.system()}"),
        AboutRow("OpenGL", str(graphics["GL_VERSION"])),
        AboutRow("Drawn by", str(graphics["GL_RENDERER"])),
    ]
    return rows


def _version_of(package: str) -> str:
    """Return the version of a package that is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


class About:
    """The card of one user."""

    def __init__(self) -> None:
        self._rows: list[AboutRow] = []
        self._opens = False
        """True until it is drawn for the first time."""

    def open(self, user: User) -> None:
        """Open the card in the next picture."""
        self._rows = rows_of(user)
        self._opens = True

    def text(self) -> str:
        """Return the facts as lines, for a report of a fault."""
        return "\n".join(f"{row.label}: {row.text}" for row in self._rows)

    def draw(self, user: User) -> None:
        """Draw the card while it is open."""
        if self._opens:
            self._opens = False
            imgui.open_popup(_POPUP)
        if not imgui.is_popup_open(_POPUP):
            return
        scale = theme.scale()
        size = imgui.get_io().display_size
        width = min(_WIDTH * scale, size.x - 16 * scale)
        middle = ImVec2(round(size.x / 2), round(size.y / 2))
        imgui.set_next_window_pos(middle, imgui.Cond_.always, ImVec2(0.5, 0.5))
        pad = ImVec2(_PAD * scale, _PAD * scale)
        imgui.push_style_var(imgui.StyleVar_.window_padding, pad)
        if imgui.begin_popup(_POPUP):
            self._draw_card(user, width - 2 * pad.x)
            imgui.end_popup()
        imgui.pop_style_var()

    def _draw_card(self, user: User, width: float) -> None:
        """Draw the rows and the buttons, so many pixels wide."""
        scale = theme.scale()
        with theme.bold(theme.TITLE_SIZE):
            imgui.text_unformatted("About splatview")
        imgui.dummy(ImVec2(width, 4 * scale))
        for row in self._rows:
            _draw_row(row, width)
        imgui.dummy(ImVec2(width, 6 * scale))
        gap = theme.ROW_GAP * scale
        buttons_width = 2 * _BUTTON * scale + gap
        imgui.set_cursor_pos_x(imgui.get_cursor_pos_x() + width - buttons_width)
        hint = "All of this as text, for a report of a fault"
        if controls.button("Copy", "copy", width=_BUTTON, hint=hint):
            user.do(user.screen.desktop.copy, self.text())
            user.say("Copied")
        if imgui.get_current_context().nav_cursor_visible:
            imgui.set_item_default_focus()
        imgui.same_line(0, gap)
        if controls.button("Close", width=_BUTTON):
            imgui.close_current_popup()


def _draw_row(row: AboutRow, width: float) -> None:
    """Draw a row; what is cut has a tip."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    draw = imgui.get_window_draw_list()
    left = corner.x + _LABEL_WIDTH * scale
    text = fitted(row.text, corner.x + width - left)
    lettering.write(draw, corner.x, corner.y, theme.u32(theme.DIM), row.label)
    lettering.write(draw, left, corner.y, theme.u32(theme.TEXT), text)
    imgui.dummy(ImVec2(width, imgui.get_text_line_height()))
    if text != row.text:
        controls.tip(row.text)
