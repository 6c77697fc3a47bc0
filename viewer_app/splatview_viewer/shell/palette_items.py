"""The items that the palette lists, and their search by typed words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.core.view import TABS
from splatview_viewer.shell.commands import COMMANDS, PALETTE
from splatview_viewer.ui import icons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.shell.user import User

NOT_NOW = "Not now"
"""The group of what cannot be done, with its reason; the last one."""
_GROUPS = ("Commands", "Settings", "Streams", "Bookmarks", "Cameras")
"""The other groups in their order; groups of other names follow them."""
_BRITISH = {"color": "colour", "center": "centre", "gray": "grey"}
"""The spelling of titles for words that Americans spell otherwise."""


@dataclass(frozen=True)
class PaletteItem:
    """Something that can be chosen."""

    title: str
    run: Callable[[], object]
    """Does it; called while drawing."""
    group: str = "Commands"
    icon: str = ""
    keys: str = ""
    """Its shortcut."""
    side_text: str = ""
    """A few faint words at the right; they are searched as well."""
    reason: str | None = None
    """Why it cannot be done now."""
    run_beside: Callable[[], object] | None = None
    """Does it in a pane of its own, for Ctrl Enter."""

    @property
    def shown_group(self) -> str:
        """The group that it is listed in."""
        if self.reason is None:
            return self.group
        return NOT_NOW


class Match(NamedTuple):
    """An item that is found, and the letters of its title that were typed."""

    item: PaletteItem
    bold: tuple[tuple[int, int], ...]
    """Begin and end of each matched part of the title, in order."""


def all_items(user: User) -> list[PaletteItem]:
    """Return everything that a user can choose now."""
    items = []
    for command in COMMANDS:
        if command.name != PALETTE:
            run = partial(user.run, command)
            items.append(_command_item(command, run, command.reason(user)))
    viewport = user.layout.active
    items += view_items(user, viewport.commands())
    items += _section_items(user)
    items += [_entry_item(user, entry) for entry in user.state.entries]
    return items


def view_items(user: User, commands: Iterable[Command[Any]]) -> list[PaletteItem]:
    """Return the items of commands of what the active pane shows."""
    viewport = user.layout.active
    items = []
    for command in commands:
        run = partial(user.do, viewport.run, command)
        items.append(_command_item(command, run, viewport.reason(command)))
    return items


def _command_item(
    command: Command[Any], run: Callable[[], object], reason: str | None
) -> PaletteItem:
    return PaletteItem(
        command.title,
        run,
        command.group,
        command.icon,
        command.main_keys,
        reason=reason,
    )


def _section_items(user: User) -> list[PaletteItem]:
    """Return an item for each section of the panel, and each setting in one."""
    items = []
    for tab, section, settings in user.interface.settings.list_sections(
        user.layout.active
    ):
        open_section = partial(user.do, user.go_to_setting, tab, section)
        items.append(
            PaletteItem(
                section,
                partial(open_section, ""),
                "Settings",
                "list",
                side_text=TABS[tab],
            )
        )
        section_path = f"{TABS[tab]}, {section}"
        for label in settings:
            if label == section:
                continue
            items.append(
                PaletteItem(
                    label,
                    partial(open_section, label),
                    "Settings",
                    "sliders",
                    side_text=section_path,
                )
            )
    return items


def _entry_item(user: User, entry: Entry) -> PaletteItem:
    fault = entry.fault or entry.fault_of_source
    run = entry.group
    if not entry.alive:
        run = f"{run}, ended"
    return PaletteItem(
        entry.name,
        partial(user.do, user.choose, entry.key),
        "Streams",
        icons.of_kind(entry.kind),
        side_text=run,
        reason=fault or None,
        run_beside=partial(user.do, user.show_beside, entry.key),
    )


# -- finding ---------------------------------------------------------------------------


def find(items: Sequence[PaletteItem], query: str) -> list[Match]:
    """Return the items in which every typed word occurs, the best of each group first.

    Groups keep their order, but one with an item of exactly this title comes first. What
    cannot be done now comes last.
    """
    query_words = query.casefold().split()
    title = " ".join(query_words)
    first_groups = {
        item.shown_group for item in items if item.title.casefold() == title
    }
    first_groups.discard(NOT_NOW)
    ranked_matches: list[tuple[tuple[int, str, int, int, int], Match]] = []
    for item in items:
        bold_parts = _parts_of(item, query_words)
        if bold_parts is None:
            continue
        ranked_matches.append(
            (_rank(item, query_words, bold_parts), Match(item, tuple(bold_parts)))
        )

    def rank_of(ranked_match: tuple[tuple[int, str, int, int, int], Match]) -> Any:
        rank, match = ranked_match
        return match.item.shown_group not in first_groups, rank

    # Items of one rank keep their order.
    ranked_matches.sort(key=rank_of)
    return [match for _, match in ranked_matches]


def _parts_of(
    item: PaletteItem, query_words: Sequence[str]
) -> list[tuple[int, int]] | None:
    """Return the parts of a title that the words are; None if one is nowhere."""
    title = item.title.casefold()
    if len(title) != len(item.title):
        # A letter that casefolding makes longer would shift what is bold.
        title = item.title.lower()
    side_text = item.side_text.casefold()
    bold_parts = []
    for query_word in query_words:
        spellings = _spellings_of(query_word)
        matched = [word for word in spellings if word in title]
        if matched:
            start = _best_begin(title, matched[0])
            bold_parts.append((start, start + len(matched[0])))
        elif not any(word in side_text for word in spellings):
            return None
    return _merged(bold_parts)


def _spellings_of(query_word: str) -> list[str]:
    """Return a word as it was typed, and in British spelling if that differs."""
    british = query_word
    for american, spelling in _BRITISH.items():
        british = british.replace(american, spelling)
    if british == query_word:
        return [query_word]
    return [query_word, british]


def _best_begin(title: str, query_word: str) -> int:
    """Return where a word is found in a title, at the begin of a word if it can be."""
    if title.startswith(query_word):
        return 0
    for separator in (" ", "_", "/", "-"):
        index = title.find(separator + query_word)
        if index >= 0:
            return index + 1
    return title.find(query_word)


def _merged(bold_parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same parts in order, those that touch as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(bold_parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _rank(
    item: PaletteItem, query_words: Sequence[str], bold_parts: Sequence[tuple[int, int]]
) -> tuple[int, str, int, int, int]:
    """Return what items are sorted by."""
    group = item.shown_group
    group_rank = len(_GROUPS)
    if group in _GROUPS:
        group_rank = _GROUPS.index(group)
    elif group == NOT_NOW:
        group_rank = len(_GROUPS) + 1
    if not query_words:
        return group_rank, group, 0, 0, 0
    if not bold_parts:
        return group_rank, group, 2, 0, 0
    first = bold_parts[0][0]
    is_inside = first > 0 and item.title[first - 1].isalnum()
    # "stream 2" is rather "stream 20" than "stream 12".
    is_apart = " ".join(query_words) not in item.title.casefold()
    return group_rank, group, int(is_inside), int(is_apart), first
