"""What the viewer knows and what one of its users chose: plain data, no graphics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from splatview_viewer.core.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from typing import Self

Color = tuple[float, float, float]
Show = Literal["color", "depth", "alpha", "normals", "ellipsoids", "rings", "points", "overdraw"]

BACKDROP: Color = (0.075, 0.08, 0.09)
"""What surrounds a picture in the viewer."""
Wish = bool | Literal["step"]
"""A request to a run: True pauses it, False resumes it, "step" lets it do one step."""
ENDED = "The run has ended: this is its last picture"


class _Settings:
    """How one stream is shown, whatever its kind."""

    def take(self, other: Self) -> None:
        """Be what another one is."""
        for name, value in vars(other).items():
            setattr(self, name, value)


@dataclass
class GaussianSettings:
    """How one stream of Gaussians is shown. Everything that decides the picture beside the camera."""

    background: Color | None = None
    """RGB in [0, 1]; None: what the stream brings, otherwise black."""
    mode: Literal["scene", "classic", "antialiased"] = "scene"
    """scene: as the scene was trained."""
    sh_degree: int | None = None
    """Highest degree of spherical harmonics to show; None: the scene's own."""
    show: Show = "color"
    scale: float = 1.0
    """Multiplies the Gaussians' sizes."""
    point_px: float = 3.0
    """Diameter of points, in points of the screen."""
    color_map: str = "turbo"
    """For depth and overdraw."""
    depth_range: tuple[float, float] | None = None
    """Depth at both ends of the colour map, world units; None: the 1st and 99th percentile of what is seen."""
    selection: Selection = EVERYTHING
    """Which Gaussians are drawn."""
    coarse_ms: float = 60.0
    """While a drag lasts, pictures that take longer than this are drawn at a lower resolution; inf: never."""
    reproject: bool = True
    """Whether the last picture is moved to where the camera is while the next one is awaited."""

    def take(self, other: GaussianSettings) -> None:
        """Show what another one shows."""
        for name, value in vars(other).items():
            if name not in ("coarse_ms", "reproject"):
                setattr(self, name, value)


@dataclass
class SnapshotSettings(_Settings):
    """How one memory snapshot is shown."""

    unit: Literal["events", "time"] = "events"
    """What the time axis counts: events, or time as the clock goes."""
    color_by: Literal["stack", "size", "category", "age", "stream", "pool"] = "stack"
    """What the colours of allocations tell."""
    reserved: bool = True
    """Whether reserved bytes are seen behind the live ones."""
    lanes: bool = False
    """Whether each memory pool has a lane of its own."""
    legend: bool = True
    """Whether it is said over the plot what the colours tell."""
    background: Color = (0.062, 0.067, 0.078)
    """Of the plot, RGB in [0, 1]."""


@dataclass
class PairSettings(_Settings):
    """How two things are seen in one picture."""

    how: Literal["split", "difference", "blend"] = "split"
    """split: one on either side of a line. difference: how far they are from each other. blend: one over the other."""
    at: float = 0.5
    """Where the line is, 0 to 1 from the left; how much is seen of the second."""
    gain: float = 4.0
    """Multiplies differences."""
    alike: bool = True
    """Whether both are shown in the same way, and not only from the same place."""


@dataclass
class CamerasSettings(_Settings):
    """How the cameras of a training are shown by themselves."""

    size: float = 1.0
    """How large they are drawn, times what fits."""
    background: Color = (0.062, 0.067, 0.078)
    """Behind them, RGB in [0, 1]."""


@dataclass
class ViewSettings:
    """The settings of one stream, whatever its kind."""

    gaussians: GaussianSettings = field(default_factory=GaussianSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    cameras: CamerasSettings = field(default_factory=CamerasSettings)
    pair: PairSettings = field(default_factory=PairSettings)


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
    """Whether the run still publishes. Files are always alive."""
    is_file: bool = False
    note: str = ""
    """What should be known about it: it ended, it cannot be read."""
    fault: str = ""
    """What went wrong while it was shown, or an empty text."""
    fault_of_source: str = ""
    """Why its data cannot be had, or an empty text."""
    paused: bool | None = None
    """Whether its run is asked to pause; None for what cannot be."""
    waits: int = 0
    """Whether the run minds that: 0: its script has never asked; 1: it asks now and then; 2: it waits now."""
    progress: float | None = None
    """0 to 1 while it loads."""
    settings: ViewSettings = field(default_factory=ViewSettings)


@dataclass
class Timings:
    """What the loop measured lately."""

    fps: float = 0.0
    """Pictures drawn in the last second."""
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds by stage of the last picture."""
    latency_ms: float | None = None
    """From the call that published what is shown to the moment its picture was given to the screen."""
    gpu_share: float | None = None
    """The share of the last second that the GPU worked for the viewer; None while there is no limit."""
    gpu_budget: float = 1.0
    """The limit."""
    gpu_memory: tuple[int, int] | None = None
    """Bytes of the GPU's memory that all programs use, and all there are; None where that is not known."""


@dataclass
class State:
    """Everything that the panel shows."""

    entries: list[Entry] = field(default_factory=list)
    selected: str | None = None
    """The key of the entry that the active pane shows."""
    light: bool = False
    """Whether the panel is light."""
    panel_open: bool = True
    help: bool = False
    """Whether the list of keys is shown."""
    toasts: list[tuple[float, str]] = field(default_factory=list)
    """What the user is told for a few seconds: until when, and in which words."""
    hint: str = ""
    """What to do when there is nothing to show."""
    notices: list[str] = field(default_factory=list)
    """Faults of the surroundings, one line each."""
    timings: Timings = field(default_factory=Timings)
    said: Timings = field(default_factory=Timings)
    """What the panel says of them: as they were a moment ago, so that numbers can be read, and that pictures of what
    does not change are alike."""
    screen: str = ""
    """The OpenGL renderer's name: the GPU's, where it runs on one."""
    says_trouble: bool = False
    """Whether the screen itself says that a run has ended."""
    others: list[str] = field(default_factory=list)
    """The names of others who look as well, and can be followed."""
    follows: str | None = None
    """The name of the one that is followed."""

    def entry(self, key: str | None) -> Entry | None:
        return next((e for e in self.entries if e.key == key), None)

    @property
    def shown(self) -> Entry | None:
        """The selected entry."""
        return self.entry(self.selected)
