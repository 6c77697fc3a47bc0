"""The command `splatview status`: list runs, streams, viewers and addresses."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from splatview_ipc.control.missing_runs import explain_missing_run, other_places
from splatview_ipc.control.run_folder import runtime_folder
from splatview_ipc.system import entry
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_RATE_WINDOW_S = 1.0
"""Time over which publishes are counted: from one of them to another that comes half a
second later, or more."""
_POLL_S = 0.02
_ANSWER_TIMEOUT_S = 3.0
_WAITING = 2
"""Value of `RemoteRun.waits` of a run whose script waits for a pause to end."""
_PAGE_FIELDS = ("pid", "url", "host", "port", "run", "started")
_SILENT = "does not answer: its process is stopped, very busy or out of open files"
_STILL_RUNS = "paused, but its script goes on: it waits where it calls splatview.wait_while_paused()"


@dataclass(frozen=True)
class Status:
    """List the live runs of this user, with their streams, viewers and addresses.

    Browsers can open an address. It holds its viewer's token, which admits other users:
    keep it to yourself.

    Examples:

        splatview status                       # everything that runs here
        splatview status --run train           # one run
        splatview status --json                # for programs
    """

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: {"runs": [{"run", "pid", "name", "streams": [...], "viewers": [...],
    "paused", "waits"}], "viewers": [{"pid", "url", "host", "port", "run", "started"}]}.
    "paused": whether a viewer pauses the run; "waits": whether its script waits for
    that now. The latter viewers serve browsers; "run" is the only one that each shows,
    or null."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Only the run with this id, beginning of an id, name or process id."""


def main(args: list[str]) -> int:
    """Run `splatview status` with these arguments.

    Returns:
        The exit status: 2 if there is no run that `--run` names.
    """
    from splatview_ipc.control.registry import list_viewers

    options: Status = entry.parse_options(Status, "splatview status", args)
    # Raises where runs cannot be found at all.
    folder = runtime_folder()
    runs = _observe(options.run)
    pages = list_viewers()
    status = 2 if options.run and not runs else 0
    if options.json:
        listed = [{name: getattr(v, name) for name in _PAGE_FIELDS} for v in pages]
        print(json.dumps({"runs": runs, "viewers": listed}, indent=2))
        return status
    for run in runs:
        print(*_run_lines(run), sep="\n")
    if not runs and options.run:
        print(
            f"splatview status: no run that {options.run!r} names in "
            f"{printable(folder)}; {explain_missing_run(folder, options.run)}",
            file=sys.stderr,
        )
    elif not runs:
        print(*_nothing_lines(folder), sep="\n")
    for page in pages:
        scope = "all runs"
        if page.run is not None:
            scope = f"run {printable(page.run)}"
        print(f"viewer at {page.url}  pid {page.pid}  shows {scope}")
    return status


def _nothing_lines(folder: Path) -> list[str]:
    """Return the lines for users who have no run."""
    lines = [
        f"No run in {printable(folder)}.",
        "In a training script: import splatview; splatview.publish(tensor)",
    ]
    places = other_places(folder)
    if places:
        lines.append(printable(places))
    return lines


def _observe(wanted_run: str | None) -> list[dict[str, Any]]:
    """Return descriptions of the runs that answer, observed until rates are known."""
    from splatview_ipc.subscriber.subscriber import Subscriber

    with Subscriber(wanted_run, client="status") as subscriber:
        subscriber.wait_for_runs(_ANSWER_TIMEOUT_S)
        end = time.monotonic()
        if subscriber.streams:
            end += _RATE_WINDOW_S
        while time.monotonic() < end:
            subscriber.poll()
            time.sleep(_POLL_S)
        return [_describe_run(run) for run in subscriber.runs if run.alive]


def _describe_run(run: RemoteRun) -> dict[str, Any]:
    """Return a run as it is printed in JSON."""
    description: dict[str, Any] = {
        "run": run.id,
        "pid": run.pid,
        "name": run.name,
        "streams": [_describe_stream(stream) for stream in run.streams.values()],
        "viewers": [v for v in run.viewers if v["client"] != "status"],
        "counters": run.counters,
        "paused": run.paused,
        "waits": run.waits == _WAITING,
    }
    if run.refused:
        description["note"] = run.refused
    elif not run.welcomed:
        description["note"] = _SILENT
    return description


def _describe_stream(stream: RemoteStream) -> dict[str, Any]:
    """Return a stream as it is printed in JSON."""
    description: dict[str, Any] = {
        "name": stream.name,
        "kind": stream.kind,
        "version": stream.version,
        "shape": list(stream.shape),
        "dtype": stream.dtype,
        "device": stream.device,
        "sharing": stream.sharing,
        "ways": list(stream.info.transports),
        "why": stream.info.reasons,
        "gpu": stream.gpu,
        "live": stream.live,
        "rate_hz": round(stream.rate_hz, 2),
    }
    if stream.info.shard:
        description["shard"] = list(stream.info.shard)
        description["group"] = stream.info.group
    if stream.kind == "overlay":
        description["over"] = stream.info.over
        description["over_run"] = stream.info.over_run
    return description


def _run_lines(run: dict[str, Any]) -> list[str]:
    """Return a run as lines for users.

    Names are other processes', so that a terminal must not obey them.
    """
    bold = ""
    dim = ""
    end = ""
    if sys.stdout.isatty():
        bold = "\x1b[1m"
        dim = "\x1b[2m"
        end = "\x1b[0m"
    viewers = [f"{printable(v['client'])} ({v['pid']})" for v in run["viewers"]]
    lines = [
        f"{bold}{printable(run['name'])}{end}  pid {run['pid']}  {dim}{run['run']}{end}  "
        f"viewers: {', '.join(viewers) or 'none'}"
    ]
    for stream in run["streams"]:
        lines.append(printable(_stream_line(stream)))
        if stream["why"]:
            lines.append(f"    {dim}not by {printable(stream['why'])}{end}")
    lines += [f"  {printable(note)}" for note in _notes(run)]
    return lines


def _stream_line(stream: dict[str, Any]) -> str:
    """Return a stream as one line."""
    form = f"{'x'.join(map(str, stream['shape']))} {stream['dtype']}"
    if "shard" in stream:
        rank, world = stream["shard"]
        form = f"rank {rank} of {world} ({stream['group'][:6]}), {form}"
    if "over" in stream:
        form = f"over {stream['over']}"
        if stream["over_run"]:
            form += f" of run {stream['over_run']}"
        form += ","
    return (
        f"  {stream['name']:<20} {stream['kind']:<10} version {stream['version']:<8} "
        f"{stream['rate_hz']:>8.1f} Hz  {form} on {stream['device']}, "
        f"shared by {stream['sharing']}"
    )


def _notes(run: dict[str, Any]) -> list[str]:
    """Return notes on a run: its faults, whether it is paused, whether it answers."""
    notes = []
    faults = []
    for counter, count in run["counters"].items():
        if count and counter != "copies":
            faults.append(f"{count} {counter.replace('_', ' ')}")
    if faults:
        notes.append(", ".join(faults))
    if run["paused"]:
        notes.append("paused" if run["waits"] else _STILL_RUNS)
    if run.get("note"):
        notes.append(run["note"])
    return notes
