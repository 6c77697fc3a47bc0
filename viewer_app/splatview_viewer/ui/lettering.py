"""Text over pictures in any script.

What imgui's font has is drawn by imgui, the rest by Pillow.

imgui neither shapes text nor orders it from right to left. Pieces that need it are
drawn once, into imgui's own texture, and stay there for as long as they are in use.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import fonts, theme
from splatview_viewer.ui.fonts import FontFace
from splatview_viewer.ui.text_order import (
    has_right_to_left,
    in_drawing_order,
    is_right_to_left,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from splatview_viewer.ui.fonts import Bitmap

_MAX_PIECES = 512
"""Pieces of text in the texture of one imgui context."""
_MAX_PIXELS = 1 << 20
"""Pixels of all pieces together."""
_MAX_WIDTH = 2048
"""Pixels across one piece; what is longer is cut."""
_MAX_MERGED = 3
"""Fonts that one imgui context gets beside its own; that of East Asia has 20 MB."""
_MERGED_SCALE = 1.25
"""Such fonts have wide margins above and below their characters."""


@dataclass(frozen=True, slots=True)
class TextRun:
    """A piece of a line in one font."""

    text: str
    face: FontFace | None
    """None: imgui's own font."""
    right_to_left: bool = False


class _FontPiece(NamedTuple):
    """A piece of a line, and its font; None for imgui's own."""

    text: str
    face: FontFace | None


@dataclass(slots=True)
class _Piece:
    """A drawn piece of text in imgui's texture."""

    rect_id: int
    bitmap: Bitmap
    frame: int
    """The frame that used it last."""


class Lettering:
    """Pieces of text in the texture of one imgui context."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[tuple[TextRun, int], _Piece] = OrderedDict()
        self._pixels = 0
        self._merged: set[str] = set()
        """Files of fonts that imgui itself has for what its own lacks."""

    def cover(self, texts: Iterable[str]) -> None:
        """Have imgui draw these texts itself from now on.

        It is called between two frames of the context. Texts that have to be shaped or
        ordered are left out.
        """
        for text in texts:
            if is_plain(text):
                continue
            for run in runs(text):
                face = run.face
                if face is not None and face.path not in self._merged:
                    self._merge(face, run.text)

    def _merge(self, face: FontFace, text: str) -> None:
        """Add a font to imgui for what its own lacks."""
        if len(self._merged) >= _MAX_MERGED or not fonts.fits_imgui(face, text):
            return
        self._merged.add(face.path)
        config = imgui.ImFontConfig()
        config.merge_mode = True
        config.dst_font = theme.fonts().regular
        config.font_no = face.index
        config.extra_size_scale = _MERGED_SCALE
        atlas = imgui.get_io().fonts
        atlas.add_font_from_file_ttf(face.path, theme.FONT_SIZE, config)

    def piece(self, run: TextRun, size: int) -> _Piece | None:
        """Return a drawn piece of text; None if it cannot be drawn.

        It is called within a frame of the imgui context.
        """
        key = (run, size)
        frame = imgui.get_frame_count()
        drawn = self._pieces.get(key)
        if drawn is None:
            drawn = self._add(run, size, frame)
            if drawn is None:
                return None
            self._pieces[key] = drawn
        drawn.frame = frame
        self._pieces.move_to_end(key)
        return drawn

    def _add(self, run: TextRun, size: int, frame: int) -> _Piece | None:
        """Draw a piece of text into imgui's texture."""
        bitmap = _rasterise(run, size)
        if bitmap is None:
            return None
        if not bitmap.coverage.size:
            return _Piece(-1, bitmap, frame)
        self._evict(bitmap.coverage.size, frame)
        is_full = len(self._pieces) >= _MAX_PIECES
        if is_full or self._pixels + bitmap.coverage.size > _MAX_PIXELS:
            return None
        atlas = imgui.get_io().fonts
        rect = imgui.ImFontAtlasRect()
        height, width = bitmap.coverage.shape
        rect_id = atlas.add_custom_rect(width, height, rect)
        if rect_id < 0:
            return None
        _write_pixels(atlas.tex_data, rect, bitmap.coverage)
        self._pixels += bitmap.coverage.size
        return _Piece(rect_id, bitmap, frame)

    def _evict(self, pixels: int, frame: int) -> None:
        """Remove the pieces that were not used for longest, but none of this frame.

        It ends once there is space for one more piece of this many pixels.
        """
        atlas = imgui.get_io().fonts
        while self._pieces:
            has_pixels = self._pixels + pixels <= _MAX_PIXELS
            has_space = has_pixels and len(self._pieces) < _MAX_PIECES
            key, oldest = next(iter(self._pieces.items()))
            if has_space or oldest.frame == frame:
                return
            del self._pieces[key]
            if oldest.rect_id >= 0:
                self._pixels -= oldest.bitmap.coverage.size
                atlas.remove_custom_rect(oldest.rect_id)


_lettering = Lettering()


def use(lettering: Lettering) -> None:
    """Draw into the texture of this lettering's imgui context from now on."""
    global _lettering
    _lettering = lettering


def measure(text: str) -> ImVec2:
    """Return width and height of text in the font and size in use.

    It is called inside an imgui frame.
    """
    if is_plain(text):
        return imgui.calc_text_size(text)
    lines = [_measure_line(line) for line in text.split("\n")]
    width = max(line.width for line in lines)
    return ImVec2(width, sum(line.bottom - line.top for line in lines))


def write(draw: imgui.ImDrawList, x: float, y: float, color: int, text: str) -> None:
    """Draw text with its upper left corner at a pixel, as large as `measure` says."""
    if is_plain(text):
        draw.add_text(ImVec2(x, y), color, text)
        return
    for line in text.split("\n"):
        extent = _measure_line(line)
        _write_line(draw, (x, y - extent.top), color, line)
        y += extent.bottom - extent.top


def extent(text: str, width: float) -> ImVec2:
    """Return the size of a text in lines of at most so many pixels, as `show` has."""
    if is_plain(text):
        return imgui.calc_text_size(text, wrap_width=width)
    return measure(_in_lines(text, width))


def _in_lines(text: str, width: float) -> str:
    size = imgui.get_font_size()
    lines = [_broken(line, width, size) for line in text.split("\n")]
    return "\n".join(part for parts in lines for part in parts)


def show(text: str, width: float = math.inf) -> None:
    """Place a text as an item of the window, in lines of at most so many pixels."""
    if not is_plain(text):
        _show_pieces(text, width)
        return
    if width == math.inf:
        imgui.text_unformatted(text)
        return
    imgui.push_text_wrap_pos(imgui.get_cursor_pos_x() + width)
    imgui.text_unformatted(text)
    imgui.pop_text_wrap_pos()


def _show_pieces(text: str, width: float) -> None:
    """Place a text that imgui alone cannot draw, as `show`."""
    text = _in_lines(text, width)
    corner = imgui.get_cursor_screen_pos()
    window = imgui.internal.get_current_window_read()
    imgui.dummy(measure(text))
    y = corner.y + window.dc.curr_line_text_base_offset
    color = imgui.get_color_u32(imgui.Col_.text)
    write(imgui.get_window_draw_list(), corner.x, y, color, text)


@lru_cache(256)
def _broken(line: str, width: float, _size: float) -> tuple[str, ...]:
    """Break a line between words into lines of at most so many pixels.

    The result depends on `_size`, that of the letters, as well.
    """
    lines = []
    current_line = ""
    for word in line.split(" "):
        longer_line = f"{current_line} {word}" if current_line else word
        if current_line and measure(longer_line).x > width:
            lines.append(current_line)
            longer_line = word
        current_line = longer_line
        while len(current_line) > 1 and measure(current_line).x > width:
            count = max(_count_of_fitting(current_line, width, _beginning), 1)
            lines.append(current_line[:count])
            current_line = current_line[count:]
    return (*lines, current_line)


def _count_of_fitting(
    text: str, width: float, shorten: Callable[[str, int], str]
) -> int:
    """Return to how many letters a text is shortened so that it fits into a width."""

    def shortened_width(count: int) -> float:
        return measure(shorten(text, count)).x

    return bisect_right(range(1, len(text) + 1), width, key=shortened_width)


def _beginning(text: str, count: int) -> str:
    return text[:count]


def _cut_end(text: str, count: int) -> str:
    return text[:count].rstrip() + "…"


def _cut_beginning(text: str, count: int) -> str:
    return "…" + text[len(text) - count :]


def fitted(text: str, width: float, *, tail: bool = False) -> str:
    """Return as much of a text as fits into `width` pixels.

    Dots are at its end, or with `tail` at its beginning, where it was cut.
    """
    # No more than a letter a pixel: texts of files can have millions, and measuring
    # looks at each.
    max_letters = max(int(width), 0) + 2
    if len(text) > max_letters:
        if tail:
            text = text[-max_letters:]
        else:
            text = text[:max_letters]
    elif measure(text).x <= width:
        return text
    return _cut(text, width, tail, imgui.get_font_size())


@lru_cache(1024)
def _cut(text: str, width: float, tail: bool, _size: float) -> str:
    """Cut a text to a width in pixels.

    The result depends on `_size`, that of the letters, as well.
    """
    shorten = _cut_end
    if tail:
        shorten = _cut_beginning
    count = _count_of_fitting(text, width, shorten)
    if count:
        return shorten(text, count)
    return ""


def is_plain(text: str) -> bool:
    """Return True if imgui's own font is enough for a text."""
    if text.isascii():
        return True
    line = runs(text)
    return all(run.face is None for run in line) and text == _text_of(line)


def _text_of(line: Sequence[TextRun]) -> str:
    return "".join(run.text for run in line)


@lru_cache(4096)
def runs(text: str) -> tuple[TextRun, ...]:
    """Return the pieces of a line in the order of drawing, from left to right."""
    pieces = _join_over_spaces(_split_by_font(text))
    if any(segment.face is not None for segment in pieces):
        pieces = _split_off_spaces(pieces)
    ordered: Sequence[tuple[str, FontFace | None]] = pieces
    if has_right_to_left(text):
        ordered = in_drawing_order(pieces)
    return tuple(
        TextRun(piece, face, is_right_to_left(piece)) for piece, face in ordered
    )


def _split_by_font(text: str) -> list[_FontPiece]:
    """Cut a line where the font of its characters changes."""
    hint = _east_asian(text)
    pieces: list[_FontPiece] = []
    for char in text:
        if pieces:
            previous_face = pieces[-1].face
        else:
            previous_face = None
        # imgui would draw such characters as missing ones.
        if _is_invisible(char) and previous_face is None:
            continue
        face = _face_of(char, hint, previous_face)
        if pieces and face == previous_face:
            pieces[-1] = _FontPiece(pieces[-1].text + char, face)
        else:
            pieces.append(_FontPiece(char, face))
    return pieces


def _face_of(char: str, hint: str, previous_face: FontFace | None) -> FontFace | None:
    """Return the font for a character.

    It is None for imgui's own, also where no font has the character.
    """
    is_mark = _is_invisible(char) or unicodedata.category(char) in ("Mn", "Mc", "Me")
    if previous_face is not None and is_mark:
        return previous_face
    if char.isspace() or _is_in_theme(char):
        return None
    return fonts.font_for(char, hint)


@lru_cache(8192)
def _is_in_theme(char: str) -> bool:
    """Return True if a character is in the font of all text."""
    if not theme.FONT_FILE.is_file():
        return char.isascii()
    return fonts.has_char(FontFace(str(theme.FONT_FILE)), char)


def _is_invisible(char: str) -> bool:
    """Return True if a character only changes how others are drawn.

    Such are joiners, directions and variants.
    """
    return unicodedata.category(char) == "Cf" or "\ufe00" <= char <= "\ufe0f"


def _join_over_spaces(pieces: Sequence[_FontPiece]) -> list[_FontPiece]:
    """Put spaces between two pieces of the same font into one piece with them."""
    joined: list[_FontPiece] = []
    for segment in pieces:
        if segment.face is not None and len(joined) > 1:
            first, space = joined[-2:]
            is_space = space.text.isspace() and space.face is None
            if is_space and first.face == segment.face:
                text = first.text + space.text + segment.text
                joined[-2:] = [_FontPiece(text, segment.face)]
                continue
        joined.append(segment)
    return joined


def _split_off_spaces(pieces: Sequence[_FontPiece]) -> list[_FontPiece]:
    """Make the spaces around pieces in imgui's font pieces of their own."""
    split: list[_FontPiece] = []
    for segment in pieces:
        text = segment.text
        core = text.strip()
        if segment.face is not None or core == text or not core:
            split.append(segment)
            continue
        start = text.index(core)
        end = start + len(core)
        chunks = (text[:start], core, text[end:])
        split += [_FontPiece(chunk, None) for chunk in chunks if chunk]
    return split


def _east_asian(text: str) -> str:
    """Return the language as whose characters those of a text are drawn.

    It is "kana", "hangul" or "han".
    """
    for char in text:
        if "\u3040" <= char <= "\u30ff":
            return "kana"
        if "\uac00" <= char <= "\ud7af":
            return "hangul"
    return "han"


@dataclass(frozen=True, slots=True)
class _LineExtent:
    """Extent of a line, from the top of a line of imgui's; y goes down."""

    width: float
    top: float
    bottom: float


def _measure_line(line: str) -> _LineExtent:
    """Return the extent of one line."""
    width = 0.0
    top = 0.0
    bottom = imgui.get_text_line_height()
    baseline = imgui.get_font_baked().ascent
    for run in runs(line):
        drawn = drawn_piece(run)
        if drawn is None:
            width += imgui.calc_text_size(run.text).x
            continue
        bitmap = drawn.bitmap
        width += bitmap.advance
        top = min(top, baseline + bitmap.top)
        bottom = max(bottom, baseline + bitmap.top + bitmap.coverage.shape[0])
    return _LineExtent(width, np.floor(top), np.ceil(bottom))


def _write_line(
    draw: imgui.ImDrawList, point: tuple[float, float], color: int, line: str
) -> None:
    """Draw one line with the top of imgui's line at a point."""
    x, y = point
    atlas = imgui.get_io().fonts
    baseline = imgui.get_font_baked().ascent
    rect = imgui.ImFontAtlasRect()
    for run in runs(line):
        drawn = drawn_piece(run)
        if drawn is None:
            draw.add_text(ImVec2(round(x), y), color, run.text)
            x += imgui.calc_text_size(run.text).x
            continue
        if drawn.rect_id >= 0 and atlas.get_custom_rect(drawn.rect_id, rect):
            left = round(x + drawn.bitmap.left)
            top = round(y + baseline + drawn.bitmap.top)
            draw.add_image(
                atlas.tex_data.get_tex_ref(),
                ImVec2(left, top),
                ImVec2(left + rect.w, top + rect.h),
                rect.uv0,
                rect.uv1,
                color,
            )
        x += drawn.bitmap.advance


def drawn_piece(run: TextRun) -> _Piece | None:
    """Return a run's drawn piece at the size in use; None for one in imgui's font."""
    if run.face is None:
        return None
    return _lettering.piece(run, max(round(imgui.get_font_size()), 1))


def _rasterise(run: TextRun, size: int) -> Bitmap | None:
    """Draw a run as pixels, cut to a bounded width."""
    assert run.face is not None
    text = run.text
    while True:
        bitmap = fonts.draw_text(text, run.face, size, run.right_to_left)
        if bitmap is None or bitmap.coverage.shape[1] <= _MAX_WIDTH:
            return bitmap
        text = text[: len(text) // 2]


def _write_pixels(
    texture: imgui.ImTextureData, rect: imgui.ImFontAtlasRect, coverage: np.ndarray
) -> None:
    """Write coverage (h, w) into a part of imgui's texture, and have it uploaded."""
    pixels = texture.get_pixels_array().reshape(
        texture.height, texture.width, texture.bytes_per_pixel
    )
    area = pixels[rect.y : rect.y + rect.h, rect.x : rect.x + rect.w]
    area[...] = 255
    area[..., -1] = coverage
    if texture.status == imgui.ImTextureStatus.want_create:
        return
    update = imgui.ImTextureRect()
    update.x = rect.x
    update.y = rect.y
    update.w = rect.w
    update.h = rect.h
    texture.updates.push_back(update)
    texture.set_status(imgui.ImTextureStatus.want_updates)
