"""Folders that SnapViewer converted: `allocations.json` (a polygon for each allocation) and `elements.db` (stacks).

They hold the size, the stack and the steps of each allocation, and nothing else: no addresses, times, streams or
segments, and not what was live throughout.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from splatview_viewer.errors import FileError
from splatview_viewer.memory.loading.convert import convert
from splatview_viewer.memory.loading.entries import whole
from splatview_viewer.memory.loading.stacks import shown

if TYPE_CHECKING:
    from splatview_viewer.files import Progress
    from splatview_viewer.memory.model import Snapshot

FRAME = re.compile(r"\(\d+\) (.*?):(-?\d+):(.*)")
NOTE = ("converted by SnapViewer: addresses are stand-ins; times, streams, pools, segments and what was live "
        "throughout are not in it")


def read_folder(allocations: int, elements: int, progress: Progress) -> Snapshot:
    """The snapshot in a converted folder.

    Args:
        allocations: a descriptor of allocations.json.
        elements: a descriptor of elements.db.

    Raises:
        FileError: damaged, or something else.
    """
    progress("reading allocations.json", 0.0)
    rows = _rows(allocations)
    progress("reading elements.db", 0.4)
    stacks = _stacks(elements)
    progress("reading events", 0.6)
    trace = _trace(rows, stacks)
    size = sum(os.fstat(fd).st_size for fd in (allocations, elements))
    snapshot = convert({"device_traces": [trace]}, "", lambda what, f: progress(what, 0.6 + 0.4 * f), consume=True,
                       file_bytes=size)
    return replace(snapshot, notes=(NOTE, *snapshot.notes))


def _rows(fd: int) -> list[tuple[int, int, int, int]]:
    """(first step, last step, element, size) of each allocation."""
    try:
        with open(fd, encoding="utf-8", closefd=False) as f:
            value = json.load(f)
    except (ValueError, RecursionError) as e:
        raise FileError(f"allocations.json: damaged: {e}") from None
    if type(value) is not list:
        raise FileError(f"allocations.json: {shown(value)}, not a list")
    rows: list[tuple[int, int, int, int]] = []
    for i, entry in enumerate(value):
        where = f"allocations.json: [{i}]"
        if type(entry) is not dict:
            raise FileError(f"{where} is {shown(entry)}, not a mapping")
        steps = entry.get("timesteps")
        if type(steps) is not list or not steps:
            raise FileError(f"{where}['timesteps'] is {shown(steps)}, not a list of steps")
        first, last = (whole(s, f"{where}['timesteps']") for s in (steps[0], steps[-1]))
        if last < first:
            raise FileError(f"{where}['timesteps'] ends at {last}, before its beginning {first}")
        rows.append((first, last, whole(entry.get("elem"), f"{where}['elem']"),
                     whole(entry.get("size"), f"{where}['size']")))
    return rows


def _stacks(fd: int) -> dict[int, list[dict[str, Any]]]:
    """The frames by the number of the element. What its rows call the stack of the n-th allocation is the one of the
    n-th element: SnapViewer writes both in different orders."""
    stacks: dict[int, list[dict[str, Any]]] = {}
    texts: dict[str, list[dict[str, Any]]] = {}
    lines: dict[str, dict[str, Any] | None] = {}
    try:
        db = sqlite3.connect(f"file:/proc/self/fd/{fd}?mode=ro&immutable=1", uri=True)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'allocs' AND type = 'table'").fetchone() is None:
                raise FileError("elements.db: it has no table allocs")
            # A column that is computed could take any time and memory for a row.
            if db.execute("SELECT 1 FROM pragma_table_xinfo('allocs') WHERE hidden != 0").fetchone() is not None:
                raise FileError("elements.db: columns of the table allocs are computed; SnapViewer stores them")
            for number, text in db.execute("SELECT idx, callstack FROM allocs"):
                if type(number) is not int or type(text) is not str:
                    raise FileError(f"elements.db: callstack {shown(number)} is {shown(text)}, not a text")
                if (frames := texts.get(text)) is None:
                    frames = texts[text] = [f for line in text.split("\n") if (f := _frame(line, lines)) is not None]
                stacks[number] = frames
        finally:
            db.close()
    except sqlite3.Error as e:
        raise FileError(f"elements.db: {e}") from None
    return stacks


def _frame(line: str, known: dict[str, dict[str, Any] | None]) -> dict[str, Any] | None:
    if line not in known:
        match = FRAME.fullmatch(line)
        known[line] = match and {"filename": match[1], "line": int(match[2][:12]), "name": match[3]}
    return known[line]


def _trace(rows: list[tuple[int, int, int, int]], stacks: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The allocs and frees in their order, as a trace holds them."""
    final = max((last for _, last, _, _ in rows), default=0)
    # At step 0 one thing happened: a free of what was there before, or the alloc that comes last in the list.
    at_zero = [i for i, r in enumerate(rows) if r[0] == 0]
    allocated = {at_zero[-1]} if at_zero and all(r[1] > 0 for r in rows) else set[int]()
    steps: list[tuple[int, int, int]] = []
    for i, (first, last, _, _) in enumerate(rows):
        if first > 0 or i in allocated:
            steps.append((first, 1, i))
        if last < final:
            steps.append((last, 0, i))
        elif first == 0 and i not in allocated:
            steps.append((final, 0, i))  # it is only known because it was freed
    steps.sort()
    free: dict[int, list[int]] = {}
    top = 512
    addr: dict[int, int] = {}
    trace: list[dict[str, Any]] = []

    def place(i: int) -> int:
        nonlocal top
        if i not in addr:
            size = rows[i][3]
            again = free.get(size)
            if again:
                addr[i] = again.pop()
            else:
                addr[i] = top
                top += max(-(-size // 512), 1) * 512
        return addr[i]

    for i, row in enumerate(rows):
        if row[0] == 0:
            place(i)
    for _, action, i in steps:
        where = place(i)
        trace.append({"action": "alloc" if action else "free", "addr": where, "size": rows[i][3],
                      "frames": stacks.get(rows[i][2], []) if action else []})
        if not action:
            free.setdefault(rows[i][3], []).append(where)
    return trace
