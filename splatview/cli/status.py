"""`splatview status`: which runs there are, what they publish, who looks, and where browsers can."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview_ipc.control.run_folder import other_runs, runtime_folder
from splatview_ipc.system import entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_run import RemoteRun

_RATE_WINDOW_S = 1.0
"""Time over which publishes are counted: from one of them to another that comes half a second later, or more."""
_ANSWER_TIMEOUT_S = 3.0
_PAGE = ("pid", "url", "host", "port", "run", "started")
_SILENT = "does not answer: its process is stopped, very busy or out of open files"


@dataclass(frozen=True)
class Status:
    """List the live runs of this user with their streams and viewers, and the addresses that browsers can open.

    An address holds its viewer's token, which admits other users: keep it to yourself.
    """

    json: bool = False
    """Print JSON: {"runs": [{"run", "pid", "name", "streams": [...], "viewers": [...], "paused", "waits"}], "viewers":
    [{"pid", "url", "host", "port", "run", "started"}]}. "paused": whether a viewer pauses the run; "waits": whether its
    script waits for that now. The latter viewers serve browsers; "run" is the only one that each shows, or null."""
    run: str | None = None
    """Only the run with this id, beginning of an id, name or process id."""


def main(args: list[str]) -> int:
    from splatview_ipc.control.registry import viewers
    from splatview_ipc.subscriber.subscriber import Subscriber

    options: Status = entry.options(Status, "splatview status", args)
    folder = runtime_folder()  # raises when runs cannot be found at all
    with Subscriber(options.run, client="status") as subscriber:
        subscriber.wait_for_runs(_ANSWER_TIMEOUT_S)
        end = time.monotonic() + (_RATE_WINDOW_S if subscriber.streams else 0)
        while time.monotonic() < end:
            subscriber.poll()
            time.sleep(0.02)
        runs = [_run(r) for r in subscriber.runs if r.alive]
    pages = viewers()
    if options.json:
        shown = [{name: getattr(v, name) for name in _PAGE} for v in pages]
        print(json.dumps({"runs": runs, "viewers": shown}, indent=2))
        return 2 if options.run and not runs else 0
    for run in runs:
        print(*_lines(run), sep="\n")
    if not runs:
        print(
            f"No run that {options.run!r} names in {printable(folder)}; {other_runs(folder, options.run)}"
            if options.run
            else f"No run in {printable(folder)}.\n"
            "In a training script: import splatview; splatview.publish(tensor)"
        )
    for v in pages:
        print(
            f"viewer at {v.url}  pid {v.pid}  shows {'all runs' if v.run is None else f'run {printable(v.run)}'}"
        )
    return 2 if options.run and not runs else 0


def _run(run: RemoteRun) -> dict[str, Any]:
    note = run.refused or ("" if run.welcomed else _SILENT)
    return {
        "run": run.id,
        "pid": run.pid,
        "name": run.name,
        "streams": [
            {
                "name": s.name,
                "kind": s.kind,
                "version": s.version,
                "shape": list(s.shape),
                "dtype": s.dtype,
                "device": s.device,
                "sharing": s.sharing,
                "ways": list(s.info.transports),
                "why": s.info.reasons,
                "gpu": s.gpu,
                "live": s.live,
                "rate_hz": round(s.rate_hz, 2),
                **(
                    {"shard": list(s.info.shard), "group": s.info.group}
                    if s.info.shard
                    else {}
                ),
                **(
                    {"over": s.info.over, "over_run": s.info.over_run}
                    if s.kind == "overlay"
                    else {}
                ),
            }
            for s in run.streams.values()
        ],
        "viewers": [v for v in run.viewers if v["client"] != "status"],
        "counters": run.counters,
        "paused": run.paused,
        "waits": run.waits == 2,
        **({"note": note} if note else {}),
    }


def _lines(run: dict[str, Any]) -> list[str]:
    """Return a run as lines for people. Names are other processes', so that a terminal must not obey them."""
    bold, dim, end = (
        ("\x1b[1m", "\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "", "")
    )
    viewers = (
        ", ".join(f"{printable(v['client'])} ({v['pid']})" for v in run["viewers"])
        or "none"
    )
    lines = [
        f"{bold}{printable(run['name'])}{end}  pid {run['pid']}  {dim}{run['run']}{end}  viewers: {viewers}"
    ]
    for s in run["streams"]:
        what = f"{'x'.join(map(str, s['shape']))} {s['dtype']}"
        if "shard" in s:
            what = f"rank {s['shard'][0]} of {s['shard'][1]} ({s['group'][:6]}), {what}"
        if "over" in s:
            what = (
                f"over {s['over']}{' of run ' if s['over_run'] else ''}{s['over_run']},"
            )
        lines.append(
            printable(
                f"  {s['name']:<20} {s['kind']:<10} version {s['version']:<8} {s['rate_hz']:>8.1f} Hz  "
                f"{what} on {s['device']}, shared by {s['sharing']}"
            )
        )
        if s["why"]:
            lines.append(f"    {dim}not by {printable(s['why'])}{end}")
    faults = [
        f"{v} {k.replace('_', ' ')}"
        for k, v in run["counters"].items()
        if v and k != "copies"
    ]
    notes = [", ".join(faults)] if faults else []
    if run["paused"]:
        notes.append(
            "paused"
            if run["waits"]
            else "paused, but its script goes on: it waits where it calls splatview.wait_while_paused()"
        )
    return lines + [
        f"  {printable(note)}" for note in (*notes, *filter(None, [run.get("note")]))
    ]
