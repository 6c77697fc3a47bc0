"""Words over the picture: a hint, progress, a fault, the value under the pointer.

Beside them how the picture came to the screen, for Details.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.shell.cards import (
    draw_empty,
    draw_end,
    draw_refusal,
    free_part,
    has_end_card,
    seen_part,
)
from splatview_viewer.ui import theme
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.widgets import faint, lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imgui_bundle import ImVec4

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import Entry, State
    from splatview_viewer.core.view import Info
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.slot import Slot

_NOTHING = "Nothing is shown here"
_CHOOSE = "Choose a stream from the list"
_MOST_TROUBLES = 4
_MOST_LINES = 6
_WIDEST = 46
"""Lines of one text at most, and their width in sizes of the letters."""


def draw_overlay(state: State, viewport: Viewport, scale: float) -> None:
    """Draw words over the picture of a viewport.

    They are a hint, progress, a fault, that the run is gone, and what its publisher
    reports as wrong.
    """
    entry = viewport.entry
    picture = seen_part(viewport)
    working = viewport.working()
    viewport.cards.clear()
    if entry is None:
        if state.helps and state.entries:
            _message(picture, scale, [_NOTHING, _CHOOSE], theme.INK_DIM)
        elif state.helps:
            draw_empty(viewport.user, viewport, scale)
        return
    fault = entry.fault or entry.fault_of_source
    if entry.progress is not None:
        _draw_progress(entry, entry.progress, picture, scale)
    elif fault:
        texts = [f"{entry.name} cannot be shown", fault]
        _message(picture, scale, texts, theme.INK_FAULT)
    elif working is None or working[1].empty:
        text = "The run ended before it was seen"
        if entry.alive:
            text = "Waiting for its next frame"
        _message(picture, scale, [entry.name, text], theme.INK_DIM)
    else:
        _draw_cards(viewport, entry, scale)
        _draw_troubles(viewport, working[0], scale)


def _draw_progress(entry: Entry, share: float, picture: Rect, scale: float) -> None:
    """Draw how much of an entry is loaded, in the middle of its picture."""
    draw = imgui.get_background_draw_list()
    middle_x = picture.x + picture.width / 2
    y = picture.y + picture.height / 2
    width = min(280 * scale, picture.width * 0.7)
    height = 4 * scale
    text = f"Loading {entry.name}"
    left = middle_x - width / 2
    size = imgui.calc_text_size(text)
    corner = ImVec2(middle_x - size.x / 2, y - size.y - 12 * scale)
    draw.add_text(corner, theme.u32(theme.INK), text)
    bars = ((1.0, faint(theme.INK_DIM, 0.3)), (max(share, 0.02), theme.MARK))
    for length, color in bars:
        end = ImVec2(left + width * length, y + height)
        draw.add_rect_filled(ImVec2(left, y), end, theme.u32(color), height / 2)


def _draw_cards(viewport: Viewport, entry: Entry, scale: float) -> None:
    """Draw the card of a file that was refused, or of a run that ended."""
    if viewport.refusal is not None:
        draw_refusal(viewport.user, viewport, viewport.refusal, scale)
    elif has_end_card(viewport, entry):
        draw_end(viewport.user, viewport, entry, scale)


def _draw_troubles(viewport: Viewport, slot: Slot, scale: float) -> None:
    """Draw what the publisher, or the picture's own drawing, reports as wrong."""
    picture = seen_part(viewport)
    free = free_part(viewport, scale)
    troubles = viewport.user.catalogue.links.troubles(slot)[:_MOST_TROUBLES]
    reason = viewport.faults.reason("overlay")
    if reason:
        troubles = [f"What is written over the picture failed: {reason}", *troubles]
    lines = []
    for text in troubles:
        for line in lines_of(text, text_room(free, scale), 3):
            lines.append((line, theme.INK_FAULT))
    if not lines:
        return
    card(
        imgui.get_background_draw_list(),
        (picture.x + picture.width / 2, picture.y + 8 * scale),
        lines,
        (0.5, 0),
        bounds=free,
        ground=theme.CARD,
        pad=0.65,
    )


def _message(picture: Rect, scale: float, texts: Sequence[str], color: ImVec4) -> None:
    lines = []
    ink = theme.INK
    for text in texts:
        for line in lines_of(text, text_room(picture, scale), _MOST_LINES):
            lines.append((line, ink))
        ink = color
    draw = imgui.get_background_draw_list()
    draw.push_clip_rect(
        ImVec2(picture.x, picture.y),
        ImVec2(picture.x + picture.width, picture.y + picture.height),
    )
    card(
        draw,
        (picture.x + picture.width / 2, picture.y + picture.height / 2),
        lines,
        (0.5, 0.5),
        ground=theme.CARD,
        pad=1.2,
    )
    draw.pop_clip_rect()


def text_room(picture: Rect, scale: float) -> float:
    """Return the pixels of width that a text over a picture has."""
    return min(picture.width - 40 * scale, _WIDEST * imgui.get_font_size())


def draw_readout(info: Info, picture: Rect, scale: float) -> None:
    """Write the value under the pointer at the picture's lower left."""
    if not info.readout:
        return
    with theme.font_size(theme.SMALL_SIZE):
        point = (picture.x + 12 * scale, picture.y + picture.height - 12 * scale)
        line = [(info.readout, theme.INK)]
        draw = imgui.get_background_draw_list()
        card(draw, point, line, (0, 1), bounds=picture, ground=theme.CARD, pad=0.6)


def status_phrases(state: State, info: Info) -> list[str]:
    """Return the parts of the status line, most important first."""
    t = state.displayed_timings
    phrases = list(info.details)
    if t.fps >= 2:
        phrases.append(f"{t.fps:.0f} pictures/s")
    if t.gpu_share is not None:
        phrase = f"GPU share {t.gpu_share:.0%} of {t.gpu_budget:.0%}"
        if t.worker_share:
            phrase += f", {t.worker_share:.0%} by functions"
        phrases.append(phrase)
    if t.gpu_memory is not None:
        used, total = t.gpu_memory
        phrases.append(f"GPU memory {size_text(used)} of {size_text(total)}")
    stages = [f"{name} {ms:.1f}" for name, ms in t.stages.items() if ms >= 0.05]
    if stages:
        phrases.append(" + ".join(stages) + " ms")
    phrases += info.path
    if state.screen:
        phrases.append(state.screen)
    return phrases


def latency_phrases(state: State) -> list[str]:
    """Return the time that a version takes to the screen."""
    ms = state.displayed_timings.latency_ms
    alive = (
        state.selected_entry is not None
        and state.selected_entry.alive
        and not state.selected_entry.is_file
    )
    if ms is None or not alive:
        return []
    return [f"{ms:.1f} ms from publish to the screen"]
