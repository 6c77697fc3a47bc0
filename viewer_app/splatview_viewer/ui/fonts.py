"""Fonts of this machine for characters that imgui's font lacks.

Text in them is drawn as bitmaps.

Pillow shapes the text, with HarfBuzz where it finds libfribidi. Fonts are found by the
names of their files in the usual folders, then by fontconfig.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("splatview")

_FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    f"{sys.prefix}/fonts",
    f"{sys.prefix}/share/fonts",
)
_MAX_FILES = 20_000
"""Files of these folders that are looked at."""
_MAX_LISTED = 64
"""Fonts that fontconfig names for one character."""
_FONTCONFIG_S = 3.0
"""Seconds to wait for fontconfig, which may build its cache first."""
_SUFFIXES = (".ttf", ".otf", ".ttc")
_CJK = "CJK"
_SYMBOLS = "SYMBOLS"
_CJK_NAMES = frozenset(
    [
        "CJK",
        "HIRAGANA",
        "KATAKANA",
        "HANGUL",
        "BOPOMOFO",
        "IDEOGRAPHIC",
        "FULLWIDTH",
        "HALFWIDTH",
        "KANGXI",
    ]
)
"""First words of the Unicode names of characters that one font has together."""
_CJK_FILES = (
    "notosanscjk",
    "sourcehansans",
    "notosanssc",
    "notosansjp",
    "notosanskr",
    "wqy-microhei",
    "wqy-zenhei",
    "droidsansfallback",
    "notoserifcjk",
    "nanumgothic",
    "ipagp",
    "ipaexg",
    "takaopgothic",
    "vlgothic",
    "unbatang",
    "uming",
    "ukai",
)
_SYMBOL_FILES = ("notosanssymbols", "symbola", "notosansmath")
_ALL_FILES = ("dejavusans", "freesans", "freeserif", "unifont")
"""Fonts of many scripts."""
_STYLES = ("bold", "italic", "oblique", "thin", "light", "black", "medium", "condensed")
_CJK_FACES = {"kana": 0, "hangul": 1, "han": 2}
"""Faces of Noto's collections: the same characters as Japanese, Korean and Chinese
write them."""
_COMPLEX = frozenset(
    [
        "ARABIC",
        "SYRIAC",
        "DEVANAGARI",
        "BENGALI",
        "GURMUKHI",
        "GUJARATI",
        "ORIYA",
        "TAMIL",
        "TELUGU",
        "KANNADA",
        "MALAYALAM",
        "SINHALA",
        "THAI",
        "LAO",
        "TIBETAN",
        "MYANMAR",
        "KHMER",
    ]
)
"""Scripts whose letters join, or are reordered."""
_MAX_FONT_BYTES = 1 << 26
"""Bytes of a font that imgui reads whole."""
_PACKAGES = {_CJK: "fonts-noto-cjk", _SYMBOLS: "fonts-symbola"}
_ABSENT = "\U0010ffff"
"""A character that no font has."""


@dataclass(frozen=True, slots=True)
class FontFace:
    """A font in a file."""

    path: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Bitmap:
    """A piece of text as pixels."""

    coverage: np.ndarray
    """(h, w) uint8."""
    left: int
    top: int
    """Position of the upper left pixel from the start of the baseline; y goes down."""
    advance: float
    """From the start of the text to that of what follows it, pixels."""


def script_of(char: str) -> str:
    """Return the script of a character by its Unicode name, such as "ARABIC".

    "CJK" for those of East Asia, "SYMBOLS" for pictures and signs.
    """
    script = unicodedata.name(char, "").partition(" ")[0]
    if script in _CJK_NAMES:
        return _CJK
    if unicodedata.category(char).startswith("S"):
        return _SYMBOLS
    return script


@lru_cache(8192)
def font_for(char: str, hint: str = "han") -> FontFace | None:
    """Return a font with a character; None where this machine has none.

    The latter is logged once for each script.

    Args:
        char: one character.
        hint: how East Asian characters are written, a key of `_CJK_FACES`.
    """
    script = script_of(char)
    for path in _candidates(script, char):
        index = 0
        if _is_noto_collection(path):
            index = _CJK_FACES[hint]
        face = FontFace(path, index)
        if has_char(face, char):
            _warn_unshaped(script)
            return face
    # Marks are parts of letters.
    if script and unicodedata.category(char)[0] in "LS":
        _warn_missing(script)
    return None


def _is_noto_collection(path: str) -> bool:
    """Return True for Noto's font of East Asia, which has a face for each language."""
    name = Path(path).name.lower()
    return name.endswith(".ttc") and name.startswith("noto") and "cjk" in name


def _candidates(script: str, char: str) -> Iterator[str]:
    """Yield fonts that may have a character of a script, the best first."""
    yield from _named_files(script)
    yield from _fontconfig_files(script, char)


@lru_cache(1)
def can_shape() -> bool:
    """Return True if letters are joined and ordered.

    Then Pillow has Raqm, and libfribidi was found.
    """
    from PIL import features

    return bool(features.check("raqm"))


def fits_imgui(face: FontFace, text: str) -> bool:
    """Return True if imgui, which does not shape text, may draw a text in a font."""
    if any(unicodedata.bidirectional(char) in ("R", "AL") for char in text):
        return False
    if any(script_of(char) in _COMPLEX for char in text):
        return False
    try:
        return os.path.getsize(face.path) <= _MAX_FONT_BYTES
    except OSError:
        return False


def draw_text(
    text: str, face: FontFace, size: int, right_to_left: bool
) -> Bitmap | None:
    """Draw one line of text in a font; return None where the font cannot.

    `size` is the pixels of the em.
    """
    try:
        font = _load_font(face, size)
        options: dict[str, Any] = {}
        if can_shape():
            if right_to_left:
                options["direction"] = "rtl"
            else:
                options["direction"] = "ltr"
        elif right_to_left:
            text = text[::-1]
        mask, offset = font.getmask2(text, mode="L", anchor="ls", **options)
        advance = font.getlength(text, **options)
    except (OSError, ValueError):
        return None
    width, height = mask.size
    coverage = np.array(mask, np.uint8).reshape(height, width)
    return Bitmap(coverage, int(offset[0]), int(offset[1]), float(advance))


@lru_cache(32)
def _load_font(face: FontFace, size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(face.path, size, index=face.index)


@lru_cache(8192)
def has_char(face: FontFace, char: str) -> bool:
    """Return True if a font has a character.

    That is drawn otherwise than one that no font has.
    """
    try:
        return _pixels_of(face, char) != _missing_glyph(face)
    except (OSError, ValueError):
        return False


@lru_cache(64)
def _missing_glyph(face: FontFace) -> tuple[tuple[int, int], bytes]:
    """Return what a font draws in place of a character that it lacks."""
    return _pixels_of(face, _ABSENT)


def _pixels_of(face: FontFace, char: str) -> tuple[tuple[int, int], bytes]:
    """Return the size and the pixels of a character.

    Raises:
        OSError, ValueError: the font cannot draw it.
    """
    mask = _load_font_unshaped(face).getmask(char)
    return mask.size, bytes(mask)


@lru_cache(64)
def _load_font_unshaped(face: FontFace) -> Any:
    """Load a font without HarfBuzz.

    That takes some characters apart that the font lacks, as Thai's am.
    """
    from PIL import ImageFont

    engine = ImageFont.Layout.BASIC
    return ImageFont.truetype(face.path, 16, index=face.index, layout_engine=engine)


@lru_cache(1)
def _installed() -> tuple[tuple[str, str], ...]:
    """Return name and path of the font files in the usual folders.

    Names are in lower case, without suffix.
    """
    files = []
    for path in _walk_folders():
        stem, suffix = os.path.splitext(os.path.basename(path))
        if suffix.lower() in _SUFFIXES:
            files.append((stem.lower(), path))
    return tuple(sorted(files))


def _walk_folders() -> Iterator[str]:
    """Yield the files of the usual folders, a bounded number."""
    count = 0
    for folder in _FOLDERS:
        for root, _, names in os.walk(os.path.expanduser(folder)):
            for name in names:
                count += 1
                if count > _MAX_FILES:
                    return
                yield os.path.join(root, name)


@lru_cache(128)
def _named_files(script: str) -> tuple[str, ...]:
    """Return the fonts that have a script by their files' names, the best first."""
    script_stem = script.lower()
    stems: tuple[str, ...] = (
        f"notosans{script_stem}",
        f"lohit-{script_stem}",
        f"noto{script_stem}",
        f"notonaskh{script_stem}",
        f"notoserif{script_stem}",
    )
    if script == _CJK:
        stems = _CJK_FILES
    elif script == _SYMBOLS:
        stems = _SYMBOL_FILES
    stems = (*stems, *_ALL_FILES)

    def rank(entry: tuple[str, str]) -> tuple[int, int, int, str]:
        stem, path = entry
        matches = [n for n, start in enumerate(stems) if stem.startswith(start)]
        if matches:
            order = matches[0]
        else:
            order = len(stems)
        styles = sum(style in stem for style in _STYLES)
        return order, styles, len(stem), path

    ranked = sorted((rank(entry), entry[1]) for entry in _installed())
    return tuple(path for (order, *_), path in ranked if order < len(stems))


@lru_cache(128)
def _fontconfig_files(script: str, char: str) -> tuple[str, ...]:
    """Return the fonts with a character by fontconfig, where it is installed."""
    program = shutil.which("fc-list")
    if program is None or not script or len(_queried) > _MAX_LISTED:
        return ()
    _queried.add(char)
    try:
        process = subprocess.run(
            [program, f":charset={ord(char):x}:scalable=true", "file"],
            capture_output=True,
            timeout=_FONTCONFIG_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    output = process.stdout.decode(errors="replace")
    paths = [line.strip().rstrip(":").strip() for line in output.splitlines()]
    usable = [path for path in paths if path.lower().endswith(_SUFFIXES)]

    def rank(path: str) -> tuple[int, int, str]:
        name = os.path.basename(path).lower()
        return sum(style in name for style in _STYLES), "serif" in name, path

    return tuple(sorted(usable, key=rank)[:_MAX_LISTED])


_queried: set[str] = set()
"""Characters for which fontconfig was asked: a bounded number."""


@lru_cache(128)
def _warn_missing(script: str) -> None:
    """Log, once for a script, which package has a font for it."""
    titles = {
        _CJK: "Chinese, Japanese and Korean characters",
        _SYMBOLS: "some symbols",
    }
    log.warning(
        "no font on this machine has %s: sudo apt install %s, and start the viewer "
        "again",
        titles.get(script, f"{script.capitalize()} characters"),
        _PACKAGES.get(script, "fonts-noto-core"),
    )


@lru_cache(128)
def _warn_unshaped(script: str) -> None:
    """Log, once for a script, that its letters are drawn one by one."""
    if script in _COMPLEX and not can_shape():
        log.warning(
            "%s letters are drawn one by one, for libfribidi is missing: sudo apt "
            "install libfribidi0, and start the viewer again",
            script.capitalize(),
        )
