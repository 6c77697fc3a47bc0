"""Text in scripts that imgui's font lacks, drawn by the fonts of this machine."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest

from splatview_viewer.core.screen import Rect
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from splatview_viewer.ui import fonts, lettering, theme
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.text_order import in_drawing_order
from splatview_viewer.ui.widgets import fitted

W = 300
H = 100


def face_of(text: str) -> fonts.FontFace:
    face = fonts.font_for(text[0])
    if face is None:
        pytest.skip(f"no font on this machine has {text[0]}")
    return face


@pytest.fixture
def drawn(screen: OffscreenScreen) -> Iterator[Callable[[str], np.ndarray]]:
    """`drawn(text)`: the picture of a card with this text, (H, W) int."""
    screen.resize(W, H)
    with closing(Surface()) as panel:

        def draw(text: str) -> np.ndarray:
            rects = []

            def draw_over(rect: Rect, scale: float) -> bool:
                from imgui_bundle import ImVec4, imgui

                front = imgui.get_background_draw_list()
                ground = ImVec4(0, 0, 0, 1)
                with theme.font_size(20):
                    rects.append(
                        card(front, (10, 30), [(text, theme.TEXT)], ground=ground)
                    )
                return False

            screen.framebuffer.use()
            screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
            panel.draw_over(screen.framebuffer, draw_over, 1.0)
            pixels = screen.pixels()[..., :3].astype(int).max(2)
            rect = rects[0]
            outside = pixels.copy()
            outside[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width] = 0
            assert not outside.any(), "the text stays on its card"
            return pixels

        yield draw


@pytest.mark.parametrize(
    ("text", "other_text"),
    [
        ("行人", "汽车"),
        ("犬と子", "猫と子"),
        ("고양이", "강아지"),
        ("قطة", "كلب"),
        ("חתול", "כלב"),
        ("बिल्ली", "कुत्ता"),
        ("แมว", "หมา"),
    ],
)
def test_labels_of_any_script_are_drawn(
    drawn: Callable[[str], np.ndarray], text: str, other_text: str
) -> None:
    face_of(text)
    first = drawn(text)
    second = drawn(other_text)
    assert (first > 100).sum() > 50
    assert (np.abs(first - second) > 40).sum() > 50
    np.testing.assert_array_equal(first, drawn(text))
    with_score = drawn(f"{text} 0.90")
    assert (with_score > 100).sum() > (first > 100).sum() + 30


def test_lines_of_several_scripts_lie_below_one_another(
    drawn: Callable[[str], np.ndarray],
) -> None:
    face_of("行")
    lower = drawn("A\n行人")
    rows = np.flatnonzero((lower > 100).any(1))
    upper = np.flatnonzero((drawn("A") > 100).any(1))
    assert rows[0] == upper[0]
    assert rows[-1] > upper[-1] + 12


def test_right_to_left_letters_start_at_the_right(
    drawn: Callable[[str], np.ndarray],
) -> None:
    """A number after such a word is at its left."""
    face = face_of("שם")
    first = fonts.draw_text("ש", face, 40, True)
    drawn_word = fonts.draw_text("שם", face, 40, True)
    assert first is not None
    assert drawn_word is not None
    height, width = first.coverage.shape
    letter = drawn_word.coverage[:height, -width:]
    np.testing.assert_array_equal(letter > 128, first.coverage > 128)
    drawn("")
    order = [run.text for run in lettering.runs("שם 12")]
    assert order == ["12", " ", "שם"]
    assert [run.text for run in lettering.runs("A שם 12")] == [
        "A",
        " ",
        "שם",
        " ",
        "12",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("א 12", "12 א"),
        ("(א)", "(א)"),
        ("א (ב)", "(ב) א"),
        ("א 12 0.50", "0.50 12 א"),
        ("x א 12 ב 0.50", "x ב 12 א 0.50"),
        ("א (hello world) ב", "ב (hello world) א"),
        ("id:5 א 0.50", "id:5 א 0.50"),
        ("א.", ".א"),
        ("א x 世", "x 世 א"),
        ("x 12", "x 12"),
    ],
)
def test_words_numbers_and_brackets_are_ordered_as_they_are_read(
    text: str, expected: str
) -> None:
    pieces: list[tuple[str, str]] = []
    for char in text:
        if char in "אב":
            face = "hebrew"
        elif char == "世":
            face = "cjk"
        else:
            face = "imgui"
        if pieces and pieces[-1][1] == face:
            pieces[-1] = pieces[-1][0] + char, face
        else:
            pieces.append((char, face))
    assert "".join(text_piece for text_piece, _ in in_drawing_order(pieces)) == expected


def test_decomposed_letter_is_drawn_in_the_font_of_its_word() -> None:
    """Thai's sara am is drawn as two characters where a font lacks it."""
    thai = "น้ำ"
    face = face_of(thai)
    assert lettering.runs(thai) == (lettering.TextRun(thai, face),)


@pytest.mark.parametrize(("text", "letters"), [("بيت", "بيت"), ("हिन्दी", "हिन्दी")])
def test_letters_that_join_are_joined(text: str, letters: str) -> None:
    face = face_of(text)
    if not fonts.can_shape():
        pytest.skip("libfribidi is missing, which Pillow shapes text with")
    right_to_left = text[0] == "ب"
    joined = fonts.draw_text(text, face, 40, right_to_left)
    alone = [fonts.draw_text(letter, face, 40, right_to_left) for letter in letters]
    assert joined is not None
    assert joined.advance < 0.9 * sum(b.advance for b in alone if b is not None)


def test_invisible_characters_are_not_drawn(
    drawn: Callable[[str], np.ndarray],
) -> None:
    """Joiners, directions and variants add nothing, in whichever font they stand."""
    expected = drawn("cat")
    for text in ("c\u200dat", "\u200fcat\u200e", "cat\ufe0f", "\ufeffcat"):
        np.testing.assert_array_equal(drawn(text), expected)
    face_of("行")
    np.testing.assert_array_equal(drawn("行\ufe0f"), drawn("行"))


def test_many_labels_stay_within_their_share_of_the_texture(
    drawn: Callable[[str], np.ndarray],
) -> None:
    face_of("行")
    first = drawn("行人")
    for start in range(0x4E00, 0x4E00 + 1500, 14):
        drawn("".join(map(chr, range(start, start + 14))))
    np.testing.assert_array_equal(drawn("行人"), first)
    # A text of any length is cut, not refused.
    assert (drawn("行" * 500) > 100).any()


def test_imgui_itself_draws_names_that_need_no_shaping(
    screen: OffscreenScreen,
) -> None:
    """Names of East Asia are drawn once they are known; right-to-left names are not."""
    from imgui_bundle import ImVec2, imgui

    face_of("行")
    screen.resize(W, H)
    letters = lettering.Lettering()
    with closing(Surface()) as panel:

        def draw(text: str) -> np.ndarray:
            def draw_over(rect: Rect, scale: float) -> bool:
                front = imgui.get_background_draw_list()
                front.add_text(ImVec2(10, 30), 0xFFFFFFFF, text)
                return False

            screen.framebuffer.use()
            screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0)
            panel.draw_over(screen.framebuffer, draw_over, 1.0)
            return screen.pixels()[..., :3].astype(int)

        np.testing.assert_array_equal(draw("行人"), draw("汽车"))
        letters.cover(["camera", "שלום", "قطة"])
        np.testing.assert_array_equal(draw("行人"), draw("汽车"))
        letters.cover(["行人"])
        assert (np.abs(draw("行人") - draw("汽车")) > 40).sum() > 50


def test_fitting_reads_no_more_letters_than_fit(
    screen: OffscreenScreen,
) -> None:
    """A name in a file can have millions of letters, and is fitted in each picture."""
    fits: list[str] = []
    peaks: list[int] = []
    head = "a" * 99 + "b" * 3_000_000
    tail = "b" * 3_000_000 + "a" * 99

    def draw_over(rect: Rect, scale: float) -> bool:
        tracemalloc.start()
        fits.append(fitted(head, 100.0))
        fits.append(fitted(tail, 100.0, tail=True))
        fits.append(fitted("short", 100.0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        return False

    with closing(Surface()) as panel:
        screen.framebuffer.use()
        panel.draw_over(screen.framebuffer, draw_over, 1.0)
    assert fits[0].strip("a") == fits[1].strip("a") == "\u2026"
    assert len(fits[0]) > 8
    assert fits[2] == "short"
    assert peaks[0] < 1_000_000


def test_script_without_a_font_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Few fonts have Khitan and Nushu."""
    with caplog.at_level(logging.WARNING, "splatview"):
        for char in ("\U00018b00", "\U0001b170"):
            absent = fonts.font_for(char) is None
            if absent:
                assert fonts.font_for(chr(ord(char) + 1)) is None
            warnings = [
                r for r in caplog.records if "no font on this machine" in r.message
            ]
            assert len(warnings) == int(absent)
            caplog.clear()
