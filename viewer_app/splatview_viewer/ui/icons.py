"""Icons, by names that say what they mean here: glyphs of Font Awesome 6."""

from __future__ import annotations

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import theme

SIZE = 13.0
"""Of an icon that is a button, in points of its font."""
TOUCH_SIZE = 17.0
"""Of an icon that is a button for a finger."""
TEXT_SIZE = 12.0
"""Of an icon before a text, or at the end of a field."""
CARET_SIZE = 11.0
"""Of the caret of a head or a field, and of a tick."""
_GLYPHS = {
    "menu": "\uf0c9",
    "play": "\uf04b",
    "pause": "\uf04c",
    "step": "\uf051",
    "back": "\uf048",
    "stop": "\uf04d",
    "eye": "\uf06e",
    "hide": "\uf070",
    "pin": "\uf08d",
    "more": "\uf141",
    "gaussians": "\uf1b2",
    "together": "\uf1b3",
    "image": "\uf03e",
    "cameras": "\uf302",
    "camera": "\uf030",
    "film": "\uf03d",
    "scalars": "\uf201",
    "memory": "\uf538",
    "find": "\uf002",
    "open": "\uf07c",
    "save": "\uf0c7",
    "download": "\uf019",
    "moon": "\uf186",
    "sun": "\uf185",
    "help": "\uf059",
    "settings": "\uf013",
    "fit": "\uf065",
    "full_screen": "\uf424",
    "keyboard": "\uf11c",
    "inspect": "\uf05b",
    "crop": "\uf565",
    "box": "\uf5cb",
    "lasso": "\uf5ee",
    "brush": "\uf1fc",
    "undo": "\uf2ea",
    "redo": "\uf2f9",
    "plus": "+",
    "close": "\uf00d",
    "right": "\uf054",
    "down": "\uf078",
    "caret_down": "\uf0d7",
    "tied": "\uf0c1",
    "untied": "\uf127",
    "panel": "\uf0db",
    "layers": "\uf5fd",
    "sliders": "\uf1de",
    "frames": "\uf008",
    "done": "\uf058",
    "check": "\uf00c",
    "warning": "\uf071",
    "copy": "\uf0c5",
    "paste": "\uf0ea",
    "code": "\uf121",
    "delete": "\uf1f8",
    "bookmark": "\uf02e",
    "around": "\uf2f1",
    "table": "\uf00a",
    "list": "\uf03a",
    "terminal": "\uf120",
    "alone": "\uf2d0",
    "difference": "\ue13a",
    "file": "\uf15b",
    "export": "\uf56e",
    "unplugged": "\ue560",
    "swap": "\uf362",
    "filter": "\uf0b0",
    "orbit": "\uf0b2",
    "gauge": "\uf625",
    "training": "\uf017",
    "loop": "\uf021",
    "follow": "\uf519",
}


_OF_KINDS = {
    "image": "image",
    "gaussians": "gaussians",
    "rendered": "gaussians",
    "cameras": "cameras",
    "scalars": "scalars",
    "memory": "memory",
    "snapshot": "memory",
    "ranks": "memory",
    "pair": "difference",
    "together": "together",
}


def of_kind(kind: str) -> str:
    """Return the name of the icon of a kind of stream."""
    return _OF_KINDS.get(kind, "file")


def glyph(name: str) -> str:
    """Return the character of an icon in the font of icons. Raises KeyError."""
    return _GLYPHS[name]


def draw(
    draw_list: imgui.ImDrawList,
    name: str,
    center: tuple[float, float],
    color: ImVec4,
    points: float = SIZE,
) -> None:
    """Draw an icon around a pixel.

    Args:
        draw_list: imgui's.
        name: one of the names of this file.
        center: in pixels.
        color: of its ink.
        points: size of its font, which is about that of its ink.
    """
    font = theme.fonts().icons
    character = glyph(name)
    pixels = points * theme.scale()
    half = _half_sizes.get((name, pixels))
    if half is None:
        imgui.push_font(font, points)
        size = imgui.calc_text_size(character)
        imgui.pop_font()
        half = size.x / 2, size.y / 2
        _half_sizes[name, pixels] = half
    corner = ImVec2(round(center[0] - half[0]), round(center[1] - half[1]))
    draw_list.add_text(font, pixels, corner, theme.u32(color), character)


_half_sizes: dict[tuple[str, float], tuple[float, float]] = {}
"""Half of the width and height of icons in pixels, by name and size of the font."""
