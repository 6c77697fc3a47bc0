"""The panel's footer: open, save, running jobs, theme, help; and the popups of these."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from imgui_bundle import ImVec2, imgui

from splatview_ipc.system.terminal import printable
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import RunningJob
from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.files import (
    list_later,
    recent_files,
    save_curves,
    typed_path,
)
from splatview_viewer.shell.menu import (
    RULE,
    MenuRow,
    draw_chosen,
    draw_icon,
    draw_menu,
    draw_words,
)
from splatview_viewer.shell.runs import logged_curves, told_entry
from splatview_viewer.ui import controls, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.text_field import text_field
from splatview_viewer.ui.words import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.jobs import Job
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.view import View
    from splatview_viewer.shell.files import FoundFile
    from splatview_viewer.shell.user import User

Popup = Literal["open", "save", "jobs"]

_WIDTH = 380.0
"""Points of the popups of files and jobs."""
_ROW = 28.0
_MOST_ROWS = 12
"""Rows of files that are seen at once."""
_RING = 22.0


class Footer:
    """Draws the footer of one user's panel, and its popups."""

    def __init__(self) -> None:
        self._wanted: Popup | None = None
        """The popup to open with the next picture."""
        self._folder = Path()
        """What a path is typed relative to."""
        self._listed_folder = Path()
        """Whose files are listed: the one of the path that is typed."""
        self._typed = ""
        """The text in the field of the popup."""
        self._root: Path | None = None
        """The folder that everything that may be opened is in; None: anywhere."""
        self._listing: Job[list[FoundFile]] | None = None
        self._listed_files: Sequence[FoundFile] = ()
        self._fault = ""
        """Why the folder cannot be listed."""
        self._takes_keyboard = False
        """The field takes the keyboard with the next picture."""
        self._recent: Sequence[Path] = ()
        self._loading: Sequence[Entry] = ()
        """Entries that were loading when the list changed last."""
        self._list_changes = -1
        self._busy_views: list[View[Any, Any]] = []
        """Views that had jobs in the last picture."""

    def show(self, popup: Popup) -> None:
        """Open a popup with the next picture."""
        self._wanted = popup

    def open_files(self, user: User) -> None:
        """Open the list of files of the current folder."""
        try:
            folder = Path.cwd()
            self._root = None
            if _is_page(user):
                self._root = folder.resolve()
            self._list(user, folder)
        except OSError as e:
            # The working folder was removed.
            self._fault = str(e)
        recent = recent_files(user.catalogue.memo)
        self._recent = [path for path in recent if self._may_open(path)]
        self.show("open")
        user.mark_interface(3)

    def _may_open(self, path: Path) -> bool:
        """Return whether a user may open a file or folder from here.

        A page opens what is below the folder that the viewer was started in, and
        nothing else of its machine.
        """
        try:
            return self._root is None or path.resolve().is_relative_to(self._root)
        except (OSError, RuntimeError):
            # Links that lead in circles.
            return False

    def _open(self, user: User, path: Path) -> None:
        """Open a file that was chosen or typed."""
        if self._may_open(path):
            user.open(path)
        else:
            user.say(f"A page opens only what is in {printable(str(self._root))}")

    def _list(self, user: User, folder: Path) -> None:
        """List a folder from now on, and take paths relative to it."""
        self._folder = folder
        self._typed = ""
        self._takes_keyboard = True
        self._list_files(user, folder)

    def _list_files(self, user: User, folder: Path) -> None:
        """List the files of a folder."""
        if self._listing is not None:
            self._listing.cancel()
            self._listing = None
        self._listed_folder = folder
        self._fault = ""
        self._listed_files = ()
        if self._may_open(folder):
            wake = partial(user.catalogue.do, user.mark_interface, 2)
            self._listing = list_later(folder, wake)

    # -- the row -----------------------------------------------------------------------

    def draw(self, user: User, rect: Rect, scale: float) -> None:
        """Draw the footer in its rectangle."""
        height = theme.BUTTON_HEIGHT
        top = rect.y + (rect.height - height * scale) / 2
        imgui.set_cursor_screen_pos(ImVec2(rect.x + 8 * scale, top))
        if controls.button(
            "Open", "open", height=height, look="flat", hint="A file (Ctrl O)"
        ):
            user.do(self.open_files, user)
        imgui.same_line(0, 4 * scale)
        hint = "The scene, a picture, the path, curves"
        if controls.button("Save", "save", height=height, look="flat", hint=hint):
            self.show("save")
        side = height * scale
        right = rect.x + rect.width - 8 * scale
        imgui.set_cursor_screen_pos(ImVec2(right - 2 * side - 4 * scale, top))
        icon = "sun"
        if user.state.light:
            icon = "moon"
        theme_name = "Light"
        if user.state.light:
            theme_name = "Dark"
        hint = f"{theme_name} colours; pictures stay as they are"
        if controls.icon_button(icon, theme_name, hint=hint):
            user.do(user.set_light, not user.state.light)
        imgui.set_cursor_screen_pos(ImVec2(right - side, top))
        if controls.icon_button("help", "Keys", hint="The list of keys (?)"):
            user.do(user.toggle_help)
        jobs = self.jobs(user)
        if jobs:
            end = right - 2 * side - 12 * scale
            self._draw_ring(jobs, end, rect.y + rect.height / 2)

    def _draw_ring(
        self, jobs: Sequence[RunningJob], right: float, middle: float
    ) -> None:
        """Draw how far the jobs are as a ring, and their number.

        Of one job alone it is the number of its pieces.
        """
        scale = theme.scale()
        text = str(len(jobs))
        if len(jobs) == 1 and jobs[0].count:
            text = jobs[0].count
        with theme.font_size(theme.SMALL_SIZE):
            width = lettering.measure(text).x + 37 * scale
        height = theme.BUTTON_HEIGHT * scale
        imgui.set_cursor_screen_pos(ImVec2(right - width, middle - height / 2))
        target = controls.item("Running jobs", width, height)
        controls.tip("\n".join(f"{job.title}, {job.progress:.0%}" for job in jobs[:8]))
        draw = imgui.get_window_draw_list()
        if target.hovered:
            rounding = theme.FIELD_ROUNDING * scale
            draw.add_rect_filled(
                target.low, target.high, theme.u32(theme.HOVER), rounding
            )
        center = ImVec2(target.x + 15 * scale, middle)
        radius = (_RING / 2 - 3) * scale
        draw.add_circle(center, radius, theme.u32(theme.DOWN), 32, 3 * scale)
        share = sum(job.progress for job in jobs) / len(jobs)
        start_angle = -math.pi / 2
        draw.path_clear()
        draw.path_arc_to(
            center, radius, start_angle, start_angle + max(share, 0.03) * math.tau, 32
        )
        draw.path_stroke(theme.u32(theme.ACCENT), 3 * scale)
        with theme.font_size(theme.SMALL_SIZE):
            write(text, target.x + 29 * scale, middle, theme.DIM)
        if target.pressed:
            self.show("jobs")

    def jobs(self, user: User) -> list[RunningJob]:
        """Return what works for the user now: films, files that are read or written."""
        catalogue = user.catalogue
        if self._list_changes != catalogue.list_changes:
            self._list_changes = catalogue.list_changes
            self._loading = [e for e in catalogue.entries if e.progress is not None]
        jobs = []
        for entry in self._loading:
            if entry.progress is not None:
                cancel = partial(catalogue.forget, entry.key)
                name = printable(entry.name)
                jobs.append(RunningJob(f"Loading {name}", entry.progress, cancel))
        shown_views = [viewport.view for viewport in user.layout]
        views = [
            shown.view for shown in shown_views if shown is not None and not shown.empty
        ]
        # A film goes on while other entries are shown.
        views += [view for view in self._busy_views if view not in views]
        self._busy_views = []
        for view in views:
            view_jobs = view.jobs()
            if view_jobs:
                self._busy_views.append(view)
                jobs += view_jobs
        return jobs

    # -- popups ------------------------------------------------------------------------

    def draw_popups(self, user: User) -> None:
        """Draw the popup that is open, above the footer."""
        popup = self._wanted
        self._wanted = None
        with board("popups", Rect(0, 0, 1, 1)):
            if popup is not None:
                imgui.open_popup(popup)
            self._draw_save(user)
            scale = theme.scale()
            pad = ImVec2(6 * scale, 6 * scale)
            for name, draw in (("open", self._draw_open), ("jobs", self._draw_jobs)):
                if not imgui.is_popup_open(name):
                    continue
                low = self._corner(user)
                imgui.set_next_window_pos(low, imgui.Cond_.always.value, ImVec2(0, 1))
                imgui.push_style_var(imgui.StyleVar_.window_padding, pad)
                imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(0, 0))
                if imgui.begin_popup(name):
                    width = min(_WIDTH * scale, imgui.get_io().display_size.x * 0.9)
                    draw(user, width, popup == name)
                    imgui.end_popup()
                imgui.pop_style_var(2)

    def _corner(self, user: User) -> ImVec2:
        """Return the lower left corner of a popup."""
        footer = user.interface.zones.footer
        gap = 6 * theme.scale()
        if footer.height and user.has_panel:
            return ImVec2(footer.x + gap, footer.y - gap)
        return ImVec2(gap, imgui.get_io().display_size.y - gap)

    def _draw_save(self, user: User) -> None:
        """Draw the list of what can be saved."""
        if not imgui.is_popup_open("save"):
            return
        low = self._corner(user)
        rows = save_rows(user)
        height = sum(11 if row is RULE else _ROW for row in rows) + 12
        draw_menu("save", rows, (low.x, low.y - height * theme.scale()))

    def _draw_open(self, user: User, width: float, is_first: bool) -> None:
        """Draw the field for a path, files opened lately, and those of a folder."""
        self._take_listing()
        scale = theme.scale()
        imgui.set_next_item_width(width)
        if is_first or self._takes_keyboard:
            self._takes_keyboard = False
            imgui.set_keyboard_focus_here()
        has_entered, self._typed = text_field(
            "##path",
            "Type a path, or part of a name",
            self._typed,
            imgui.InputTextFlags_.enter_returns_true.value,
        )
        imgui.dummy(ImVec2(width, 6 * scale))
        folder, _ = typed_path(self._folder, self._typed)
        if folder != self._listed_folder:
            self._list_files(user, folder)
        rows = self._file_rows(user)
        if has_entered:
            self._open_typed(user, rows)
        height = min(max(len(rows), 1), _MOST_ROWS) * _ROW * scale
        low = imgui.get_cursor_screen_pos()
        list_rect = Rect(round(low.x), round(low.y), round(width), round(height))
        user.interface.surface.input.lists = [list_rect]
        if imgui.begin_child("files", ImVec2(width, height)):
            if not rows:
                text = "Looking \u2026" if self._listing is not None else "Nothing here"
                write(
                    self._fault or text,
                    imgui.get_cursor_screen_pos().x + 10 * scale,
                    imgui.get_cursor_screen_pos().y + _ROW / 2 * scale,
                    theme.DIM,
                    width - 20 * scale,
                )
            for index, row in enumerate(rows):
                if not imgui.is_rect_visible(ImVec2(1, _ROW * scale)):
                    imgui.dummy(ImVec2(1, _ROW * scale))
                elif _draw_row(row, index):
                    row.run()
                    if row.icon != "right":
                        imgui.close_current_popup()
        imgui.end_child()

    def _take_listing(self) -> None:
        job = self._listing
        if job is None or not job.done:
            return
        self._listing = None
        if job.fault:
            self._fault = job.fault
        elif not job.cancelled:
            self._listed_files = job.result()

    def _file_rows(self, user: User) -> list[MenuRow]:
        """Return the rows of files that match what is typed."""
        rows: list[MenuRow] = []
        _, name = typed_path(self._folder, self._typed)
        part = name.lower()
        if _is_page(user) and not self._typed:
            send = partial(user.screen.desktop.ask, "files")
            rows.append(MenuRow("Send one of yours \u2026", send, "export"))
        for path in self._recent:
            if self._typed.lower() in path.name.lower():
                run = partial(user.do, self._open, user, path)
                rows.append(
                    MenuRow(printable(path.name), run, "training", fact="lately")
                )
        has_parent = self._may_open(self._folder.parent)
        if has_parent and self._folder.parent != self._folder and not self._typed:
            run = partial(user.do, self._list, user, self._folder.parent)
            text = printable(str(self._folder.parent))
            rows.append(MenuRow("Folder above", run, "right", fact=text))
        for file in self._listed_files:
            if part not in file.path.name.lower():
                continue
            if file.is_folder:
                if not self._may_open(file.path):
                    continue
                run = partial(user.do, self._list, user, file.path)
                icon = "right"
            else:
                run = partial(user.do, self._open, user, file.path)
                icon = "file"
            rows.append(MenuRow(printable(file.path.name), run, icon, fact=file.text))
        return rows

    def _open_typed(self, user: User, rows: Sequence[MenuRow]) -> None:
        """Open the path that was typed, or the only file whose name it is a part of."""
        path = self._folder / Path(self._typed).expanduser()
        if not self._typed:
            return
        if path.exists():
            user.do(self._open, user, path)
        elif rows:
            rows[0].run()
            if rows[0].icon == "right":
                return
        else:
            self._takes_keyboard = True
            user.do(user.say, f"{printable(str(path))}: no such file")
            return
        imgui.close_current_popup()

    def _draw_jobs(self, user: User, width: float, is_first: bool) -> None:
        """Draw the running jobs, each with a button that gives it up."""
        scale = theme.scale()
        jobs = self.jobs(user)
        if not jobs:
            imgui.close_current_popup()
        for index, job in enumerate(jobs[:_MOST_ROWS]):
            corner = imgui.get_cursor_screen_pos()
            middle = corner.y + 17 * scale
            button = 84 * scale
            available_width = width - button - 70 * scale
            write(job.title, corner.x + 10 * scale, middle, theme.TEXT, available_width)
            share = f"{job.progress:.0%}"
            write(share, corner.x + width - button - 52 * scale, middle, theme.DIM)
            corner_of_button = ImVec2(corner.x + width - button, corner.y + 3 * scale)
            imgui.set_cursor_screen_pos(corner_of_button)
            reason = "It cannot be given up"
            if job.cancel is not None:
                reason = None
            if controls.button(
                "Cancel", name=f"Cancel##{index}", width=80, reason=reason
            ):
                user.do(job.cancel or user.mark_interface)
            imgui.set_cursor_screen_pos(corner)
            imgui.dummy(ImVec2(width, 34 * scale))


def _is_page(user: User) -> bool:
    """Return whether the user looks at a page, maybe on another machine."""
    return "files" in user.screen.desktop.favours


def _draw_row(row: MenuRow, index: int) -> bool:
    """Draw a row of a popup; return True if it was chosen."""
    scale = theme.scale()
    width = imgui.get_content_region_avail().x
    target = controls.item(f"{row.title}##{index}", width, _ROW * scale)
    is_focused = imgui.is_item_focused() and imgui.get_io().nav_visible
    ink = theme.TEXT
    ink_dim = theme.DIM
    if is_focused or target.hovered:
        draw_chosen(target, ring=is_focused)
        ink = theme.ON_CHOSEN
        ink_dim = theme.ON_CHOSEN
    right = draw_words(target, row.keys, ink_dim)
    x = draw_icon(target, row.icon, ink_dim)
    write(row.title, x, target.middle[1], ink, right - x)
    return target.pressed


# -- saving ----------------------------------------------------------------------------

_SAVED = (
    ("scene.save", "Scene as .ply", "gaussians"),
    ("scene.save_shown", "Scene as .ply: what is shown", "filter"),
    ("path.save", "Camera path", "film"),
    ("path.render", "Film of the path", "frames"),
)
"""Commands of scenes that save something, their rows and icons."""


def save_rows(user: User) -> list[MenuRow | None]:
    """Return the rows of the list of what can be saved."""
    active = user.layout.active
    commands = {command.name: command for command in active.commands()}
    rows: list[MenuRow | None] = []
    for name, title, icon in _SAVED:
        command = commands.get(name)
        reason: str | None = "only of scenes"
        if command is not None:
            reason = active.reason(command)
        run = partial(user.do, _run_own, user, command)
        rows.append(MenuRow(title, run, icon, reason=reason))
    nothing = None
    if user.view is None or user.view.empty:
        nothing = "nothing is shown"
    keep = active.keep_picture
    transparent = partial(user.do, keep, True)
    rows += [
        RULE,
        MenuRow("Picture", partial(user.do, keep), "camera", "Ctrl S", nothing),
        MenuRow("Picture, transparent", transparent, "layers", "Ctrl Shift S", nothing),
        RULE,
        MenuRow(
            "Curves as .csv",
            partial(user.do, _save_curves, user),
            "scalars",
            reason=None if _curves(user) else "nothing is logged",
        ),
    ]
    return rows


def _run_own(user: User, command: Command[Any]) -> None:
    user.layout.active.run(command)


def _curves(user: User) -> Any:
    group = user.interface.groups.of(told_entry(user))
    if group is None:
        return None
    return logged_curves(user, group)


def _save_curves(user: User) -> None:
    """Write what the run logged, and say where it is."""
    group = user.interface.groups.of(told_entry(user))
    curves = _curves(user)
    if group is None or curves is None:
        return
    try:
        path = save_curves(curves, group.title)
    except (FileError, OSError) as e:
        user.say(f"The curves are not saved: {e}")
        return
    user.say(f"Saved {path}")
    user.screen.desktop.hand_over(path)
