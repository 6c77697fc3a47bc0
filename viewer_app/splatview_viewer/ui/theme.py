"""The interface's colours, dark or light, its spacing and its fonts.

It is quiet, so that the picture stands out. Pictures and what surrounds them stay dark in
both themes.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import imgui_bundle
from imgui_bundle import ImVec2, ImVec4, imgui

if TYPE_CHECKING:
    from collections.abc import Iterator

FONT_SIZE = 16.0
"""Of most text, in points: ascent and descent together."""
TITLE_SIZE = 18.0
SMALL_SIZE = 14.0
AXES_SIZE = 13.0
CODE_SIZE = 14.0
ROW_HEIGHT = 28.0
"""Points of a row of the panel, and of its controls."""
ROW_GAP = 6.0
LABEL_WIDTH = 100.0
"""Points from the left of a label to its control."""
HEAD_HEIGHT = 34.0
"""Points of the head of a section."""
BUTTON_HEIGHT = 30.0
PHONE_TIME_HEIGHT = 44.0
"""Points of a phone's time strip, which lies over the lower edge of the picture."""
_TOUCH_SIZES: dict[str, tuple[float, float]] = {
    "FONT_SIZE": (FONT_SIZE, 17.0),
    "ROW_HEIGHT": (ROW_HEIGHT, 40.0),
    "ROW_GAP": (ROW_GAP, 8.0),
    "LABEL_WIDTH": (LABEL_WIDTH, 108.0),
    "HEAD_HEIGHT": (HEAD_HEIGHT, 44.0),
    "BUTTON_HEIGHT": (BUTTON_HEIGHT, 44.0),
}
"""Sizes for a pointer and for fingers: read them while drawing."""
FIELD_ROUNDING = 5.0
POPUP_ROUNDING = 7.0

_FONTS = Path(imgui_bundle.__file__).parent / "assets/fonts"
FONT_FILE = _FONTS / "Roboto/Roboto-Regular.ttf"
"""The font of most text: Latin, Greek and Cyrillic letters."""
_BOLD_FILE = _FONTS / "Roboto/Roboto-Bold.ttf"
_CODE_FILE = _FONTS / "Inconsolata-Medium.ttf"
_ICON_FILE = _FONTS / "Font_Awesome_6_Free-Solid-900.otf"


def _rgb(digits: str) -> ImVec4:
    """Return an opaque colour from six hexadecimal digits."""
    red, green, blue = bytes.fromhex(digits)
    return ImVec4(red / 255, green / 255, blue / 255, 1.0)


COLORS: dict[str, tuple[str, str]] = {
    "BAR": ("16181C", "EAEDF1"),
    "PANEL": ("1B1E23", "F6F7F9"),
    "FIELD": ("282C33", "E3E7EC"),
    "HOVER": ("333842", "D6DBE3"),
    "DOWN": ("3D434F", "C7CED8"),
    "LINE": ("2E323A", "D0D5DD"),
    "POPUP": ("22262D", "FFFFFF"),
    "PLOT": ("131519", "FFFFFF"),
    "GRID": ("262A31", "E4E7EC"),
    "TEXT": ("E4E7EC", "1A1D23"),
    "DIM": ("A3AAB6", "4D5563"),
    "FAINT": ("8F97A4", "5C6472"),
    "ACCENT": ("6CB0FF", "0B5CC4"),
    "ON_ACCENT": ("0B1420", "FFFFFF"),
    "RUN_B": ("F2A65A", "A84A00"),
    "SUCCESS": ("5FCF8F", "0C7439"),
    "WAITS": ("F2B85C", "875300"),
    "FAULT": ("FF8D80", "B3261E"),
    "CHOSEN_GROUND": ("284A73", "BFD9FB"),
    "ON_CHOSEN": ("EAF3FF", "0A2F63"),
    "FILL": ("33527A", "B4CFF2"),
}
"""The colours of the interface by name: dark, light."""
RUN_COLORS: tuple[tuple[str, str], ...] = (
    COLORS["ACCENT"],
    COLORS["RUN_B"],
    ("7BD88F", "0C7439"),
    ("C792EA", "7A3DB8"),
    ("F07FB0", "B0296B"),
    ("5CC8D6", "0A6E7D"),
)
"""The colours of runs that are compared, A and B first."""

TEXT = _rgb(COLORS["TEXT"][0])
BAR = TEXT
PANEL = TEXT
FIELD = TEXT
HOVER = TEXT
DOWN = TEXT
LINE = TEXT
POPUP = TEXT
PLOT = TEXT
GRID = TEXT
DIM = TEXT
FAINT = TEXT
ACCENT = TEXT
ON_ACCENT = TEXT
RUN_B = TEXT
SUCCESS = TEXT
WAITS = TEXT
FAULT = TEXT
CHOSEN_GROUND = TEXT
ON_CHOSEN = TEXT
FILL = TEXT
"""The colours of the theme in use, which `use` sets: read them while drawing."""
INK = _rgb("E4E7EC")
INK_DIM = _rgb("A9B0BB")
INK_FAULT = _rgb("FF8D80")
MARK = _rgb("6CB0FF")
SELECTED = _rgb("FFD34D")
LIVE = _rgb("5FCF8F")
SHADE = _rgb("16181C")
STAGE = _rgb("0E0F11")
CARD = ImVec4(18 / 255, 20 / 255, 24 / 255, 0.9)
CARD_HOVERED = _rgb("333842")
"""Colours over pictures, the same in both themes: text, facts, faults, marked, what is
selected, live, around lines, around pictures, cards, hovered buttons of cards."""
CLEAR = ImVec4(0, 0, 0, 0)
"""No colour: what is behind it shows."""
_THEMES = tuple(
    {name: _rgb(digits[is_light]) for name, digits in COLORS.items()}
    for is_light in (False, True)
)
_light: bool | None = None


def use(light: bool) -> bool:
    """Make the theme light or dark from now on; return True if that changes it.

    Every screen may have its own, so this is called before each frame.
    """
    global _light
    if light is _light:
        return False
    _light = light
    globals().update(_THEMES[light])
    return True


use(False)


@contextmanager
def over_picture() -> Iterator[None]:
    """Draw in the dark theme's colours inside: pictures are dark in both themes."""
    light = bool(_light)
    use(False)
    try:
        yield
    finally:
        use(light)


_touch = False


def use_touch(touch: bool) -> None:
    """Make rows, buttons and letters large enough for fingers from now on, or not.

    Every screen may have its own, so this is called before each frame.
    """
    global _touch
    if touch is _touch:
        return
    _touch = touch
    for name, sizes in _TOUCH_SIZES.items():
        globals()[name] = sizes[touch]


def is_touch() -> bool:
    """Return whether all is large enough for fingers."""
    return _touch


def is_light() -> bool:
    """Return whether the theme in use is the light one."""
    return bool(_light)


def run_color(index: int) -> ImVec4:
    """Return the colour of the run at an index of those compared."""
    return _rgb(RUN_COLORS[index % len(RUN_COLORS)][bool(_light)])


def apply(scale: float) -> None:
    """Style the current imgui context for a screen of `scale` pixels per point.

    It is called between frames.
    """
    style = imgui.Style()
    if _light:
        imgui.style_colors_light(style)
    else:
        imgui.style_colors_dark(style)
    for index, color in _imgui_colors().items():
        style.set_color_(index, color)
    _set_sizes(style)
    style.scale_all_sizes(scale)
    style.font_size_base = FONT_SIZE
    style.font_scale_dpi = scale
    target = imgui.get_style()
    for name in dir(style):
        value = getattr(style, name)
        if not name.startswith("_") and not callable(value):
            setattr(target, name, value)
    for i in range(imgui.Col_.count):
        target.set_color_(i, style.color_(i))


def _imgui_colors() -> dict[imgui.Col_, ImVec4]:
    """Return imgui's colours in the theme in use."""
    c = imgui.Col_
    return {
        c.text: TEXT,
        c.text_disabled: DIM,
        c.window_bg: PANEL,
        c.popup_bg: POPUP,
        c.border: LINE,
        c.separator: LINE,
        c.frame_bg: FIELD,
        c.frame_bg_hovered: HOVER,
        c.frame_bg_active: DOWN,
        c.button: FIELD,
        c.button_hovered: HOVER,
        c.button_active: DOWN,
        c.header: CHOSEN_GROUND,
        c.header_hovered: HOVER,
        c.header_active: DOWN,
        c.slider_grab: ACCENT,
        c.slider_grab_active: ACCENT,
        c.check_mark: ACCENT,
        c.scrollbar_bg: CLEAR,
        c.scrollbar_grab: DOWN,
        c.plot_histogram: ACCENT,
        # `focus.draw_ring` draws it.
        c.nav_cursor: CLEAR,
        c.text_selected_bg: CHOSEN_GROUND,
        c.modal_window_dim_bg: ImVec4(0, 0, 0, 0.35),
    }


def _set_sizes(style: imgui.Style) -> None:
    """Set distances and roundings, in points."""
    style.window_padding = ImVec2(12, 8)
    style.frame_padding = ImVec2(10, (ROW_HEIGHT - FONT_SIZE) / 2)
    style.item_spacing = ImVec2(8, ROW_GAP)
    style.item_inner_spacing = ImVec2(4, 4)
    style.frame_rounding = FIELD_ROUNDING
    style.grab_rounding = 0
    style.popup_rounding = POPUP_ROUNDING
    style.popup_border_size = 1
    style.selectable_rounding = 4
    style.scrollbar_rounding = 3
    style.scrollbar_size = 8
    style.grab_min_size = 3
    style.window_border_size = 0
    style.window_rounding = 0
    style.disabled_alpha = 0.55


class Fonts:
    """The fonts of one imgui context beside that of most text."""

    def __init__(self) -> None:
        """Add all fonts to the current imgui context, which is new.

        imgui rasterises them at every size that is drawn.
        """
        atlas = imgui.get_io().fonts
        self.regular = _add_font(atlas, FONT_FILE, FONT_SIZE)
        self.bold = _add_font(atlas, _BOLD_FILE, FONT_SIZE)
        self.code = _add_font(atlas, _CODE_FILE, CODE_SIZE)
        self.icons = _add_font(atlas, _ICON_FILE, FONT_SIZE)


_fonts: Fonts | None = None


def use_fonts(fonts: Fonts) -> None:
    """Draw with the fonts of an imgui context, which is current, from now on."""
    global _fonts
    _fonts = fonts


def fonts() -> Fonts:
    """Return the fonts of the current imgui context."""
    assert _fonts is not None, "use_fonts() comes before drawing"
    return _fonts


def _add_font(atlas: imgui.ImFontAtlas, file: Path, points: float) -> imgui.ImFont:
    if not file.is_file():
        return atlas.add_font_default()
    return atlas.add_font_from_file_ttf(str(file), points)


class _FontUse:
    """Draws with a font inside a block; a class, as frames have many of them."""

    __slots__ = ("_font", "_points")

    def __init__(self, font: imgui.ImFont | None, points: float) -> None:
        """Prepare the use of a font; None: of the present one in another size."""
        self._font = font
        self._points = points

    def __enter__(self) -> None:
        imgui.push_font(self._font, self._points)

    def __exit__(self, *exc: object) -> None:
        imgui.pop_font()


def bold(points: float = 0.0) -> _FontUse:
    """Draw bold text inside an imgui frame.

    points: its size; 0: that of most text.
    """
    return _FontUse(fonts().bold, points or FONT_SIZE)


def code(points: float = CODE_SIZE) -> _FontUse:
    """Draw code, in letters of equal width, inside an imgui frame."""
    return _FontUse(fonts().code, points)


def font_size(points: float) -> _FontUse:
    """Draw text at another size inside an imgui frame."""
    return _FontUse(None, points)


_scale = 1.0


def use_scale(pixels_per_point: float) -> None:
    """Draw at so many pixels per point from now on.

    Every screen may have its own, so this is called before each frame.
    """
    global _scale
    _scale = pixels_per_point


def scale() -> float:
    """Return pixels per point of the screen that is drawn."""
    return _scale


_packed: dict[int, tuple[int, ImVec4]] = {}
"""Colours for draw lists by the `id` of their `ImVec4`, which is kept so that no other
one gets it."""
_MAX_PACKED = 256


def rgb(color: ImVec4) -> tuple[float, float, float]:
    """Return red, green and blue of a colour, 0 to 1."""
    return color.x, color.y, color.z


def u32(color: ImVec4, alpha: float = 1.0) -> int:
    """Return a colour for imgui's draw lists; one that is never changed in place."""
    if alpha == 1.0:
        packed = _packed.get(id(color))
        if packed is not None:
            return packed[0]
    number = imgui.color_convert_float4_to_u32(
        (color.x, color.y, color.z, color.w * alpha)
    )
    if alpha == 1.0:
        if len(_packed) >= _MAX_PACKED:
            _packed.clear()
        _packed[id(color)] = number, color
    return number
