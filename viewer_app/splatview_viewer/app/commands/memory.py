"""The command `splatview memory`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

# tyro reads the annotations.
from pathlib import Path  # noqa: TC003
from typing import Annotated

import tyro

from splatview_viewer.app.commands.pictures import Shot
from splatview_viewer.app.commands.viewer import ViewerOptions


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
class Memory(ViewerOptions, _SnapshotOptions):
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
        from splatview_viewer.app.memory_answers import answer, summarise_files
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
        from splatview_viewer.app.memory_answers import summarise_folder
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
