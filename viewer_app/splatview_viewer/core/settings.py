"""The state of the viewer and the choices of its users: plain data, no graphics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

Color = tuple[float, float, float]

BLACK: Color = (0.0, 0.0, 0.0)
"""What trainers draw a scene over."""
BACKDROP: Color = (14 / 255, 15 / 255, 17 / 255)
"""What surrounds a picture in the viewer."""
Wish = bool | Literal["step"]
"""A request to a run: True pauses it, False resumes it, "step" lets it do one step."""


@dataclass
class Entry:
    """One line of the list of streams: a stream of a run, or a file."""

    key: str
    """Names it for as long as the viewer runs, also across restarts of its trainer."""
    group: str
    """The run's name, or "Files"."""
    name: str
    kind: str = ""
    version: int = 0
    rate_hz: float = 0.0
    """New versions per second."""
    alive: bool = True
    """True while the run publishes. Files are always alive."""
    is_file: bool = False
    fault: str = ""
    """The fault while it was shown, or an empty text."""
    fault_of_source: str = ""
    """The reason why its data cannot be had, or an empty text."""
    paused: bool | None = None
    """True if its run is asked to pause; None for what cannot be."""
    waits: int = 0
    """The run's answer: 0: its script has never asked; 1: it asks now and then; 2: it
    waits now."""
    progress: float | None = None
    """0 to 1 while it loads."""
    run_name: str = ""
    """The name of its run; "" for a file."""
    started_at: float = 0.0
    """When its run started, as all times here in seconds since the epoch; 0: unknown."""
    published_at: float = 0.0
    """When its run published something last, as far as that was seen; 0: never."""
    usual_gap_s: float = 0.0
    """Seconds between two publishes of its run, as a rule; 0: unknown."""
    ended_at: float = 0.0
    """When its run ended; 0: it has not."""
    step: float | None = None
    """The step of the version that was seen last, as its publisher says."""
    count: int | None = None
    """The first side of its shape: the number of its Gaussians or cameras."""
    is_listed: bool = True
    """False for what is no stream or file, but a way to show two others."""

    @property
    def lasting_name(self) -> str:
        """The name under which it is remembered, which the next run's has as well."""
        if self.is_file:
            return self.key
        return f"{self.run_name}/{self.name}"


@dataclass(frozen=True)
class Toast:
    """A message that is shown for a few seconds."""

    text: str
    topic: str = ""
    """One of the same topic takes its place; "" for none."""
    gesture: int | None = None
    """What the user did that its button takes back; None: it has no button."""
    until: float = math.inf
    """When it goes, once it has been seen."""


@dataclass
class Timings:
    """Measurements of the loop."""

    fps: float = 0.0
    """Pictures drawn in the last second."""
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds by stage of the last picture."""
    latency_ms: float | None = None
    """From the call that published what is shown to the moment its picture was given to
    the screen."""
    gpu_share: float | None = None
    """The share of the last second that the GPU worked for the viewer; None while there
    is no limit."""
    worker_share: float = 0.0
    """The part of it that render workers used, which draw for the viewer."""
    gpu_budget: float = 1.0
    """The share of the time that the GPU may work for the viewer; 1: no limit."""
    gpu_memory: tuple[int, int] | None = None
    """Bytes of the GPU's memory that all programs use, and all there are; None where
    that is not known."""


@dataclass
class State:
    """Everything that the panel shows."""

    entries: list[Entry] = field(default_factory=list)
    selected: str | None = None
    """The key of the entry that the active viewport shows; of two that are compared in
    it, that of the first."""
    light: bool = False
    """True for a light panel."""
    help: bool = False
    """True while the list of keys is shown."""
    toasts: list[Toast] = field(default_factory=list)
    """Messages for a few seconds, the newest last."""
    helps: bool = True
    """A pane with nothing to show says what to do."""
    notices: list[str] = field(default_factory=list)
    """Faults of the surroundings, one line each."""
    timings: Timings = field(default_factory=Timings)
    displayed_timings: Timings = field(default_factory=Timings)
    """The panel's numbers: the timings of a moment ago, so that they can be read, and
    that pictures of what does not change are alike."""
    screen: str = ""
    """The OpenGL renderer's name: the GPU's, where it runs on one."""

    @property
    def selected_entry(self) -> Entry | None:
        """The selected entry."""
        return next(
            (entry for entry in self.entries if entry.key == self.selected), None
        )
