"""Readers who draw by themselves, the lines to them, and the age of what they see."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import splatview
from benchmarks.browser.drawing_page import STAMPS, stamp
from benchmarks.harness import Program, percentile, wait_until
from benchmarks.web import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import ExitStack

LINE_MBIT_S = 20.0
ROUND_TRIP_S = 0.08
"""The line that figures are asked for."""
SIZE = (1280, 800)
"""Of a reader's page."""


class Address(NamedTuple):
    """The place of a viewer's page."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"


def viewer_port(viewer: Program, meanwhile: Callable[[], object]) -> Address:
    """Wait until a viewer says where its page is."""

    def has_address() -> bool:
        if viewer.has_ended:
            raise RuntimeError(f"the viewer ended: {viewer.output_lines[-1:]}")
        return any("/?token=" in line for line in list(viewer.output_lines))

    wait_until("the viewer's address", has_address, 60, meanwhile)
    options = json.loads(page_of(viewer, SIZE))
    return Address(options["port"], options["token"])


class PacedLine(Program):
    """A line of a rate and a round trip to a port."""

    def __init__(self, port: int, mbit_s: float, round_trip_s: float) -> None:
        options = {"port": port, "mbit_s": mbit_s, "round_trip_s": round_trip_s}
        super().__init__("benchmarks.browser.relay", json.dumps(options))
        self.port: int = self.request("port")["port"]

    @property
    def passed_bytes(self) -> int:
        """Bytes that were passed down so far."""
        return self.request("report")["down"]


def line_to(
    programs: ExitStack, port: int, mbit_s: float, round_trip_s: float
) -> PacedLine:
    """Start a line that ends with the programs."""
    return programs.enter_context(PacedLine(port, mbit_s, round_trip_s))


class Reader(Program):
    """A page that takes a scene at once, as `drawing_page`."""

    def __init__(self, address: Address, name: str) -> None:
        options = {
            "port": address.port,
            "token": address.token,
            "size": SIZE,
            "id": name,
        }
        self.passes: list[dict[str, Any]] = []
        """All that came whole."""
        super().__init__("benchmarks.browser.drawing_page", json.dumps(options))

    def connect(self) -> float:
        """Connect; return when it said hello."""
        return self.request("begin")["at"]

    def move(self, period_s: float) -> None:
        """Have its camera move from now on, for so long each time; 0: rest."""
        self.request("move", period_s=period_s)

    def show(self, *, on: bool) -> None:
        """Have its page be seen, or hidden."""
        self.request("show", on=on)

    def take_passes(self) -> list[dict[str, Any]]:
        """Return the passes that came whole since the last call."""
        passes = self.request("report")["passes"]
        self.passes += passes
        return passes

    def has_passes(self) -> bool:
        """Return whether any pass has come whole."""
        self.take_passes()
        return bool(self.passes)


class Publications:
    """Publishes a scene whose colour tells the version, and knows when that was."""

    def __init__(self, scene: Mapping[str, torch.Tensor]) -> None:
        self.scene = scene
        self.times: list[Published] = []
        self.seconds: list[float] = []
        """That each `publish` took."""

    def paint(self, version: int) -> None:
        """Have the scene's colour tell a version."""
        with torch.no_grad():
            self.scene["sh0"].fill_(stamp(version))

    def publish(self, version: int) -> None:
        """Publish a version, painted in place."""
        self.paint(version)
        started_at = time.perf_counter()
        splatview.publish(self.scene, "scene", meta={"step": version})
        self.seconds.append(time.perf_counter() - started_at)
        self.times.append(Published(version % STAMPS, time.monotonic()))


class Published(NamedTuple):
    """A version's stamp, and when it was published."""

    stamp: int
    time_s: float


class Age(NamedTuple):
    """Seconds from publishing a version until it was seen, and until another one was."""

    fresh_s: float
    oldest_s: float


def ages_of(
    passes: Sequence[dict[str, Any]], published: Iterable[Published]
) -> list[Age]:
    """Return the ages of the versions that a reader saw one after the other."""
    times_by_stamp: dict[int, list[float]] = {}
    for publication in published:
        times_by_stamp.setdefault(publication.stamp, []).append(publication.time_s)
    seen_versions = []
    for each_pass in passes:
        if not each_pass["refines"]:
            shown_s = each_pass["shown_at"]
            times = times_by_stamp[each_pass["stamp"]]
            seen_versions.append((times[bisect_right(times, shown_s) - 1], shown_s))
    ages = []
    for (published_at, shown_s), (_, next_at) in pairwise(seen_versions):
        ages.append(Age(shown_s - published_at, next_at - published_at))
    return ages


def age_text(ages: list[Age]) -> str:
    """Return ages as text."""
    if not ages:
        return "no two versions came"
    fresh = percentile([age.fresh_s for age in ages], 0.5)
    oldest = percentile([age.oldest_s for age in ages], 0.5)
    longest = max(age.oldest_s for age in ages)
    return f"{fresh:.2f} to {oldest:.2f} s, at most {longest:.2f} s"
