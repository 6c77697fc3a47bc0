"""What the panel says, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.system.terminal import printable
from splatview_viewer.core.screen import Caption
from splatview_viewer.core.settings import ENDED

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry, State
    from splatview_viewer.shell.shown import Shown


def status_phrases(state: State, shown: Shown) -> list[str]:
    """What the status line says, most important first."""
    t = state.said
    phrases = list(shown.details)
    if t.fps >= 2:
        phrases.append(f"{t.fps:.0f} pictures/s")
    if t.gpu_share is not None:
        phrases.append(f"GPU share {t.gpu_share:.0%} of {t.gpu_budget:.0%}")
    if t.gpu_memory is not None:
        used, total = t.gpu_memory
        phrases.append(f"GPU memory {used / 2**30:.1f} of {total / 2**30:.0f} GB")
    stages = [f"{name} {ms:.1f}" for name, ms in t.stages.items() if ms >= 0.05]
    if stages:
        phrases.append(" + ".join(stages) + " ms")
    return [*phrases, *shown.path, *([state.screen] if state.screen else [])]


def latency_phrases(state: State) -> list[str]:
    """How long a version takes to the screen."""
    ms = state.said.latency_ms
    alive = state.shown is not None and state.shown.alive and not state.shown.is_file
    return [] if ms is None or not alive else [f"{ms:.1f} ms from publish to the screen"]


def beside(entry: Entry) -> str:
    """What stands beside an entry's name: how fast it goes."""
    if entry.progress is not None:
        return f"{entry.progress:.0%}"
    if entry.is_file:
        return entry.kind
    if not entry.alive:
        return "ended"
    if entry.rate_hz >= 0.05:
        return f"{entry.rate_hz:.3g} Hz"
    return f"v{entry.version}"


def about(entry: Entry) -> str:
    """What is told of an entry when the pointer rests on it."""
    if fault := entry.fault or entry.fault_of_source:
        return fault
    if entry.is_file:
        return f"{entry.key}\n{entry.kind}. Right click to close it."
    state = "publishing" if entry.alive else "its run has ended"
    return f"{entry.kind}, version {entry.version:,}, {state}"


def caption_of(entry: Entry | None, typing: bool) -> Caption:
    """What the surroundings of a picture of this entry say."""
    if entry is None:
        return Caption(typing=typing)
    title = f"{printable(entry.name)} \u00b7 {printable(entry.group)} \u2013 splatview"
    return Caption(title, "" if entry.alive else ENDED, typing)
