"""The theme's colours, dark and light: what is written can be read."""

from __future__ import annotations

import pytest

from splatview_viewer.ui.theme import COLORS, RUN_COLORS

GROUNDS = ("BAR", "PANEL", "FIELD", "POPUP", "PLOT")
INKS = ("TEXT", "DIM", "FAINT", "ACCENT", "RUN_B", "SUCCESS", "WAITS", "FAULT")
PAIRS = [
    *((ink, ground) for ink in INKS for ground in GROUNDS),
    ("TEXT", "HOVER"),
    ("ON_CHOSEN", "CHOSEN_GROUND"),
    ("TEXT", "FILL"),
    ("ON_ACCENT", "ACCENT"),
]
"""Names of letters' colours, and of what they are written on."""


def luminance(digits: str) -> float:
    """Return the relative luminance of a colour (WCAG 2.2)."""
    shares = [channel / 255 for channel in bytes.fromhex(digits)]
    red, green, blue = (
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4
        for share in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours (WCAG 2.2): 1 to 21."""
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("is_light", [False, True], ids=["dark", "light"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_letters_stand_out_from_their_ground(
    ink: str, ground: str, is_light: bool
) -> None:
    assert contrast(COLORS[ink][is_light], COLORS[ground][is_light]) >= 4.5


@pytest.mark.parametrize("is_light", [False, True], ids=["dark", "light"])
def test_curves_of_all_runs_stand_out_from_a_plot(is_light: bool) -> None:
    for colors in RUN_COLORS:
        assert contrast(colors[is_light], COLORS["PLOT"][is_light]) >= 4.5
