"""The viewer's commands and their options; what `--help` prints comes from here."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass

# tyro reads the annotations.
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated

import tyro

from splatview_ipc.system import entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.screen import Screen
    from splatview_viewer.recording.recording import RecordOptions
    from splatview_viewer.web.browser import Browsers


@dataclass(frozen=True)
class _Viewer:
    """The options of every viewer."""

    window: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In a window. The default where there is a display."""
    web: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In browsers, any number of them: prints the address to open. The default where there
    is no display."""
    offscreen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In neither: --out alone is written. See also: splatview shot."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 7007
    """The port of --web; if it is taken, the next one that is free."""
    host: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Let --web be reached at this address of the machine from elsewhere as well
    (0.0.0.0: at all of them). Default: this machine alone, which is enough for ssh -L.
    Every connection needs the token in the printed URL."""
    allow_host: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")
    ] = ()
    """Answer --web by this name as well: that of a reverse proxy in front of it, such
    as viewer.example.org. May be given more than once. The token is needed all the
    same."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PICTURE")] = None
    """Write what is shown, panel included, to this .png, .jpg or .webp: once a second
    when it changed, and at the end."""
    size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the window or picture. A browser's are its own."""
    max_fps: Annotated[float, tyro.conf.arg(metavar="N")] = 60.0
    """Never draw more pictures a second than this. Less when nothing changes: an idle
    viewer draws none."""
    gpu_budget: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.1
    """The share of the GPU's time that the viewer takes at most while a run that it
    shows needs the GPU: 0.1 is a tenth, 1 is no limit. Pictures come less often then,
    and coarser while you move."""
    vsync: bool = True
    """Wait for the display's refresh, so that pictures do not tear."""

    def _serve(
        self,
        command: str,
        files: tuple[Path, ...],
        run: str | None,
        record: RecordOptions | None = None,
        *,
        compares: bool = False,
    ) -> None:
        """Open the viewer, and show files and runs until it is closed.

        `run` and `record` as in AppOptions.

        Args:
            command: its name, for messages.
            files: to show.
            run: that is followed.
            record: what is recorded.
            compares: the first file is shown with the second at first.
        """
        signals = list[int]()
        with entry.handle_signals(lambda signal, _: signals.append(signal)):
            self._check(command)
            if not files:
                _check_runs_can_be_found(run)
            from splatview_viewer.app import loop
            from splatview_viewer.core.host import Memo, memo_file
            from splatview_viewer.core.screen import parse_size
            from splatview_viewer.workspace.sources import (
                FileSource,
                check_files,
                entries_of,
            )

            size = parse_size(self.size)
            paths = entries_of(files)
            check_files(paths)
            # They are read while the screen is being opened.
            sources = tuple(FileSource(path) for path in paths)
            screen = self._make_screen(size)
            with ExitStack() as stack:
                browsers = self._serve_pages(screen, run)
                if browsers is not None:
                    stack.callback(browsers.close)
                    browsers.print_address(dict(os.environ))
                options = loop.AppOptions(
                    files=sources,
                    run=run,
                    max_fps=self.max_fps,
                    out=self.out,
                    watched=browsers is None or self.out is not None,
                    gpu_budget=self.gpu_budget,
                    memo=Memo(memo_file()),
                    record=record,
                    compares=compares,
                )
                app = loop.App(screen, options, browsers=browsers)
                stack.pop_all()
            loop.run(app, signals)

    def _make_screen(self, size: tuple[int, int]) -> Screen:
        """Return the first screen that the options ask for and this machine has."""
        for make in SCREENS:
            screen = make(self, size)
            if screen is not None:
                return screen
        raise AssertionError("the last maker returns a screen")

    def _serve_pages(self, screen: Screen, run: str | None) -> Browsers | None:
        """Start the server of pages, where the screen itself is not seen."""
        from splatview_viewer.screens.offscreen import OffscreenScreen

        if self.offscreen or not isinstance(screen, OffscreenScreen):
            return None
        from splatview_viewer.web.browser import Browsers

        if not self.for_browsers:
            print(
                "splatview: no display here: the viewer is a page for your browser",
                file=sys.stderr,
            )
        return Browsers(
            screen.ctx,
            screen.wake,
            host=self.host,
            port=self.port,
            allow_hosts=self.allow_host,
            run=run,
        )

    @property
    def for_browsers(self) -> bool:
        """True where an option asks for pages, which then take a window's place."""
        return bool(self.web or self.host or self.allow_host)

    def _check(self, command: str) -> None:
        """Raise ViewerError where options exclude each other or are out of range."""
        from splatview_viewer.core.errors import ViewerError

        self._check_screens(command)
        if self.allow_host:
            from splatview_viewer.web.address import allowed_host

            for name in self.allow_host:
                allowed_host(name)
        if not 0 < self.max_fps <= 1000:
            raise ViewerError(
                f"{command}: --max-fps is {self.max_fps:g}, not a number over 0 up to "
                "1000"
            )
        if not 0 < self.gpu_budget <= 1:
            raise ViewerError(
                f"{command}: --gpu-budget is {self.gpu_budget:g}, not a number over 0 "
                "up "
                "to 1 (1: no limit)"
            )
        if self.out is not None:
            from splatview_ipc.system.files import check_picture
            from splatview_viewer.formats.pictures import check_writable

            check_writable(self.out, check_picture)

    def _check_screens(self, command: str) -> None:
        """Raise ViewerError where options for several screens are named."""
        from splatview_viewer.core.errors import ViewerError

        screens = {
            "--window": self.window,
            "--web": self.web,
            "--offscreen": self.offscreen,
        }
        named = [option for option, is_named in screens.items() if is_named]
        if len(named) > 1:
            raise ViewerError(
                f"{command}: {' and '.join(named)} exclude each other; name one"
            )
        if not (self.window or self.offscreen):
            return
        web_options = {
            "--host": self.host is not None,
            "--allow-host": bool(self.allow_host),
        }
        for option, is_named in web_options.items():
            if is_named:
                raise ViewerError(
                    f"{command}: {option} is for --web, and {named[0]} was named"
                )
        if self.window and not _has_display():
            raise ViewerError(
                f"{command}: --window: there is no display here (DISPLAY and "
                "WAYLAND_DISPLAY are not set); leave --window out, for a page in your "
                "browser"
            )


def _window(options: _Viewer, size: tuple[int, int]) -> Screen | None:
    """Open a window, if the options ask for one or there is a display."""
    needs_no_window = options.offscreen or options.for_browsers or not _has_display()
    if not options.window and needs_no_window:
        return None
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.window import WindowScreen

    try:
        return WindowScreen(*size, vsync=options.vsync)
    except GraphicsError as e:
        if options.window:
            raise
        print(f"splatview: {e}", file=sys.stderr)
        return None


def _has_display() -> bool:
    """Return whether the environment names a display, be it reachable or not."""
    return bool(os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY"))


def _offscreen(options: _Viewer, size: tuple[int, int]) -> Screen:
    """Open a screen that is not seen, for browsers and pictures."""
    from splatview_viewer.screens.offscreen import OffscreenScreen

    if options.offscreen and options.out is None:
        print(
            "splatview: take a picture at any time with: splatview shot picture.png",
            file=sys.stderr,
        )
    return OffscreenScreen(*size)


SCREENS: tuple[Callable[[_Viewer, tuple[int, int]], Screen | None], ...] = (
    _window,
    _offscreen,
)
"""Makers of screens, in the order in which they are tried. They return None where the
options do not ask for theirs; the last one never does."""


@dataclass(frozen=True)
class Serve(_Viewer):
    """Watch what training runs publish, and files.

    Shows every stream of every run of yours on this machine, as it comes: start it
    before or after the training, restart either at will. Nothing has to be configured.
    Files can be dropped on the window as well.

    Examples:

        splatview serve                     # all runs, and those that begin later
        splatview serve --web               # over ssh: open the address it prints
        splatview serve scene.ply           # a file, without any training
        splatview serve --record kept       # keep the scenes that are published
        splatview serve kept                # and look at them again

    Mouse: wheel zooms, drag moves a picture; over Gaussians, left drag orbits, right
    drag moves. Touch: one finger drags, two zoom and move. Keys: Ctrl + K finds every
    command, stream and setting, F fits, H hides the panel, ? lists all keys.
    """

    files: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FILE ...]")
    ] = ()
    """Scenes (PLY, compressed PLY, splat, SPZ, SOG, checkpoints), pictures, memory
    snapshots, or what --record kept, to show."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Follow this run alone: its id, the beginning of it, its name or its process id;
    waits for one that is to begin. Default: all."""

    record: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Keep snapshots of every scene that is published here, whether it is shown or not,
    to look at again later: splatview serve FOLDER. A folder that was recorded into
    before is continued."""
    record_every: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Steps between two snapshots, at first. When there is no more room, every second
    one is dropped and N doubles. Default: 100 versions, or 10 seconds where they come
    slowly."""
    record_memory: Annotated[int, tyro.conf.arg(metavar="MB")] = 512
    """Room in memory for snapshots of the scenes that are shown: the bar under the
    picture goes back through them. 0: keep none."""
    record_disk: Annotated[int, tyro.conf.arg(metavar="MB")] = 20_000
    """The same for what --record keeps in its folder."""

    def execute(self) -> None:
        from splatview_viewer.recording.recording import RecordOptions

        record = RecordOptions(
            self.record, self.record_every, self.record_memory, self.record_disk
        )
        record.check("serve")
        self._serve("serve", self.files, self.run, record)


@dataclass(frozen=True)
class _SnapshotOptions:
    """The options for snapshots.

    The options of the last base come first: these stand before those of the viewer.
    """

    file: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")
    ] = None
    """What torch.cuda.memory._dump_snapshot wrote, also packed by gzip; or a folder of
    such files, one for each rank."""
    other: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE2]")
    ] = None
    """A second snapshot, to compare with."""
    sql: Annotated[str | None, tyro.conf.arg(metavar="QUERY")] = None
    """Print the answer to this query and end; - reads it from standard input. The
    tables can only be read."""
    csv: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the answer to --sql as CSV, all rows of it, bytes as plain numbers."""
    summary: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the peaks, who holds most at them and what may leak, and end; of two
    snapshots also what grew."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the same as JSON."""
    png: Annotated[Path | None, tyro.conf.arg(metavar="PNG")] = None
    """Draw the timeline into this file and end; --size says how large."""
    html: Annotated[Path | None, tyro.conf.arg(metavar="HTML")] = None
    """Write the timeline as one page and end. It opens by a double click, needs no
    network, and tells size and stack under the pointer."""
    flame: Annotated[Path | None, tyro.conf.arg(metavar="SVG")] = None
    """Write a flame graph of the live bytes by stack and end; every browser shows it."""
    at: Annotated[int | None, tyro.conf.arg(metavar="EVENT")] = None
    """The number of events after which --flame shows what is live. Default: the peak.
    """
    device: Annotated[str | None, tyro.conf.arg(metavar="N")] = None
    """The device that --png, --html and --flame draw: 1 for GPU 1, host for pinned
    memory. Default: the GPU with most events."""


@dataclass(frozen=True)
class Memory(_Viewer, _SnapshotOptions):
    """Look into memory snapshots of PyTorch's.

    They tell who held how much of the GPU's memory, and when.

    To take one, in the training script, at its beginning and later:

        torch.cuda.memory._record_memory_history()
        torch.cuda.memory._dump_snapshot("memory.pickle")

    Examples:

        splatview memory memory.pickle                # in a window or a browser
        splatview memory before.pickle after.pickle   # what grew
        splatview memory memory.pickle --summary      # what matters most, as text
        splatview memory memory.pickle --png memory.png
        splatview memory memory.pickle --html memory.html    # a page to send
        splatview memory memory.pickle --flame memory.svg    # who holds the peak
        splatview memory snapshots/                   # one of each rank: their peaks
        splatview memory snapshots/ --summary
        splatview memory memory.pickle --sql "SHOW TABLES"

    SQL is DuckDB's. SHOW TABLES lists the tables with their columns. Sizes are bytes;
    NULL is what lies outside the trace. With two snapshots the tables are in the
    schemas a and b: SELECT count(*) FROM b.events. Three queries to begin with:

    Who holds the memory when most of it is used:

        SELECT coalesce(own_function, category) AS who, own_line AS line,
        count(*) AS n, format_bytes(sum(size)::BIGINT) AS bytes
        FROM at_peak() LEFT JOIN stacks USING (stack_id)
        GROUP BY ALL ORDER BY sum(size) DESC LIMIT 10

    What of one function stays for more than 100 ms:

        SELECT id, size, lifetime_us FROM allocations JOIN stacks USING (stack_id)
        WHERE text LIKE '%softmax%' AND lifetime_us > 100000 ORDER BY size DESC

    How memory is cut up at the end:

        SELECT state, count(*) AS n, sum(size) AS bytes, max(size) AS largest
        FROM blocks GROUP BY ALL
    """

    def execute(self) -> None:
        from splatview_viewer.app.memory_command import answer, summarise_files
        from splatview_viewer.core.errors import ViewerError
        from splatview_viewer.snapshot import check_sql, check_timeline

        if self.file is None:
            raise ViewerError(
                "memory: name a snapshot: splatview memory FILE.pickle. For the memory "
                "of a run that is "
                "alive: splatview.publish_memory() in the training script, then "
                "splatview serve"
            )
        files = [self.file]
        if self.other is not None:
            files.append(self.other)
        self._check_answer()
        for file in files:
            if not os.path.exists(file):
                raise ViewerError(f"{file}: no such file or folder")
        if any(os.path.isdir(file) for file in files):
            self._show_folder(files)
            return
        if self.sql is not None:
            check_sql()
            answer(
                self.file,
                self.sql,
                as_csv=self.csv,
                out=sys.stdout,
                second_path=self.other,
            )
            return
        if self.summary or self.json:
            summarise_files(files, sys.stdout, as_json=self.json)
            return
        if self.html is not None or self.flame is not None:
            self._write_document(self.file)
            return
        check_timeline()
        if self.png is not None:
            shot = Shot(self.png, self.file, size=self.size, device=self.device)
            shot.draw(self.other)
        else:
            is_pair = len(files) == 2
            self._serve("memory", tuple(files), None, compares=is_pair)

    def _write_document(self, file: Path) -> None:
        """Write the page or the drawing that was asked for."""
        from splatview_viewer.app.memory_pages import write_flame, write_page
        from splatview_viewer.core.errors import ViewerError

        option = "--html" if self.flame is None else "--flame"
        if self.other is not None:
            raise ViewerError(
                f"memory: {option} is of one snapshot; write one of each, or compare "
                "them by --png, --summary or --sql"
            )
        if self.html is not None:
            print(write_page(file, self.html, self.device))
        elif self.flame is not None:
            print(write_flame(file, self.flame, self.device, self.at))

    def _show_folder(self, files: list[Path]) -> None:
        """Show the ranks of a folder, or print their peaks."""
        from splatview_viewer.app.memory_command import summarise_folder
        from splatview_viewer.core.errors import ViewerError
        from splatview_viewer.snapshot import check_timeline
        from splatview_viewer.snapshot.loading.ranks import rank_files

        named_answers = self._named_answers()
        only_peaks = set(named_answers) <= {"--summary", "--json"}
        folder = next(file for file in files if os.path.isdir(file))
        if len(files) > 1 or not only_peaks:
            reason = "a second file" if only_peaks else named_answers[0]
            raise ViewerError(
                f"memory: {folder} is a folder, which {reason} does not go with; name "
                "its files instead, or ask for --summary or --json"
            )
        if named_answers:
            summarise_folder(folder, sys.stdout, as_json=self.json)
            return
        check_timeline()
        # The screen is opened only for a folder that has something to show.
        rank_files(folder)
        self._serve("memory", (folder,), None)

    def _named_answers(self) -> list[str]:
        """Return the options that ask for an answer and not for the viewer."""
        answers = {
            "--sql": self.sql is not None,
            "--summary": self.summary,
            "--json": self.json and not self.summary,
            "--png": self.png is not None,
            "--html": self.html is not None,
            "--flame": self.flame is not None,
        }
        return [option for option, is_named in answers.items() if is_named]

    def _check_answer(self) -> None:
        """Raise ViewerError where an option does not go with the answer asked for."""
        from splatview_viewer.core.errors import ViewerError

        screens = {
            "--window": self.window,
            "--web": self.web,
            "--offscreen": self.offscreen,
            "--host": self.host,
            "--allow-host": self.allow_host,
            "--out": self.out,
        }
        named_answers = self._named_answers()
        named_screens = [option for option, is_named in screens.items() if is_named]
        named = named_answers + named_screens
        if named_answers and len(named) > 1:
            raise ViewerError(
                f"memory: {' and '.join(named)} exclude each other; name one"
            )
        if self.csv and self.sql is None:
            raise ViewerError("memory: --csv is for --sql, which was not named")
        draws = {"--png", "--html", "--flame"}.intersection(named_answers)
        if self.device is not None and not draws:
            raise ViewerError(
                "memory: --device is for --png, --html and --flame, which were not "
                "named; the viewer's panel chooses among devices, and SQL has a column "
                "device"
            )
        if self.at is not None and self.flame is None:
            raise ViewerError("memory: --at is for --flame, which was not named")


def _check_runs_can_be_found(run: str | None) -> None:
    """Raise ViewerError when the runtime folder cannot be used.

    Without files there would never be anything to show. Prints which runs there are
    where `run` has not started.
    """
    from splatview_ipc.control.errors import RuntimeFolderError
    from splatview_ipc.control.missing_runs import explain_missing_run
    from splatview_ipc.control.run_folder import runtime_folder
    from splatview_viewer.core.errors import ViewerError

    try:
        folder = runtime_folder()
    except RuntimeFolderError as e:
        raise ViewerError(f"serve: {e}") from None
    explanation = ""
    if run is not None:
        explanation = explain_missing_run(folder, run)
    if explanation:
        print(
            f"splatview: serve: no run {run!r} yet; {explanation}; waiting for it",
            file=sys.stderr,
            flush=True,
        )


@dataclass(frozen=True)
class Shot:
    """One picture of a stream or file, as a PNG, JPEG or WebP.

    Needs no display, no window and no running viewer.

    Examples:

        splatview shot out.png                        # what a training shows
        splatview shot out.png --stream render --size 1920x1080
        splatview shot out.png scene.ply --background transparent
        splatview shot out.png scene.ply --camera transforms.json
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT.png")]
    """The picture to write, a .png, .jpg, .jpeg or .webp. It appears whole or not at
    all."""
    file: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")
    ] = None
    """A scene, a picture, a memory snapshot, or a folder of serve --record, whose newest
    snapshot is drawn. Default: a stream of a run."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The stream to draw. Default: the only one, or the first; Gaussians before images.
    """
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """The run that publishes it: its id, the beginning of it, its name or its process
    id."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """Width and height. Default: the picture's own, or 1280x720 for others. Pictures
    are fitted."""
    camera: Annotated[str | None, tyro.conf.arg(metavar="JSON")] = None
    """JSON, or a file that holds it: {"viewmat": 4x4, "K": 3x3} (world to camera,
    OpenCV axes) or {"position": [x,y,z], "look_at": [x,y,z]} with optional "up", "fov";
    or the first camera of a nerfstudio path, a transforms.json or inria's cameras.json.
    Default: the scene seen whole."""
    background: Annotated[str, tyro.conf.arg(metavar="R,G,B")] = "0,0,0"
    """R,G,B as fractions (0.1,0.2,0.3), or as 0 to 255 if any is over 1; or
    transparent. Default: black."""
    show: Annotated[str | None, tyro.conf.arg(metavar="WAY")] = None
    """How Gaussians are shown, as the viewer's Look tab: color, depth, alpha, normals,
    ellipsoids, rings, points or overdraw. Default: color."""
    device: Annotated[str | None, tyro.conf.arg(metavar="N")] = None
    """The device of a memory snapshot: 1 for GPU 1, host for pinned memory. Default:
    the GPU with most events."""

    def execute(self) -> None:
        self.draw(None)

    def draw(self, other: Path | None) -> None:
        """Draw the picture; with a second memory snapshot, below the first."""
        from splatview_viewer.app.shot import shoot

        width, height = shoot(self, other)
        print(f"{printable(self.out)}: {width} x {height}")


@dataclass(frozen=True)
class Video:
    """A film of a scene along a camera path, as an mp4 or a folder of PNGs.

    Needs no display and no running viewer.

    Examples:

        splatview video turn.mp4            # once around what a training shows
        splatview video fly.mp4 scene.ply --path path.json
        splatview video frames/ scene.ply --background transparent    # PNGs

    Paths are made in the viewer (the panel's tab "Film"), in the format that
    nerfstudio's viewer writes and ns-render reads.
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """NAME.mp4, which appears whole or not at all, or a folder for PNGs."""
    file: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")
    ] = None
    """A scene, or a folder of serve --record, whose newest snapshot is filmed. Default:
    a stream of a run, as it is when this begins."""
    path: Annotated[Path | None, tyro.conf.arg(metavar="JSON")] = None
    """The camera path. Default: once around the scene, in 8 seconds."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The stream to film. Default: the only one, or the first."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """The run that publishes it: its id, the beginning of it, its name or its process
    id."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """Width and height. Default: the path's own, or 1280x720."""
    fps: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """Pictures a second. Default: the path's own, or 30."""
    seconds: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """How long the film is. Default: as long as the path takes."""
    background: Annotated[str, tyro.conf.arg(metavar="R,G,B")] = "0,0,0"
    """R,G,B as fractions or as 0 to 255, or transparent. Default: black."""

    def execute(self) -> None:
        from splatview_viewer.app.film import film
        from splatview_viewer.core.errors import ViewerError

        for name, value, maximum in (
            ("fps", self.fps, 1000),
            ("seconds", self.seconds, 3600),
        ):
            if value is not None and not 0 < value <= maximum:
                raise ViewerError(
                    f"video: --{name} is {value:g}, not a number over 0 up to {maximum}"
                )
        print(f"{printable(self.out)}: {film(self)} pictures")


COMMANDS = {"serve": Serve, "shot": Shot, "video": Video, "memory": Memory}


def parse(args: list[str]) -> Serve | Shot | Video | Memory:
    """Return the command that arguments name; print help or what is wrong, and exit."""
    if not args or args[0] not in COMMANDS:
        sys.exit(f"splatview: the first argument names one of {', '.join(COMMANDS)}")
    return entry.parse_options(COMMANDS[args[0]], f"splatview {args[0]}", args[1:])
