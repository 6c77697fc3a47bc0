"""What viewers that die or stop cost a trainer that publishes flat out, against viewers that live.

One viewer looks at everything all the time, so that each version is shared. Beside it there is a second one that
lives, one that is stopped (SIGSTOP), or one after the other that is killed at some moment of its life, ten a second.
They take turns in blocks of a second, so that all meet the same machine; "none" comes first, without any viewer.
Starting a process ten times a second takes a processor by itself, and each that uses a GPU takes some of that:
strangers show what this costs, who do as much, are killed as often and know nothing of the run. Viewers that are killed
are to be compared with them. "waits" are the times that the publishing thread gave its processor away because it had to
wait; torch copies with one thread, since several wait for one another. Only calls that shared their version count:
while the helper thread makes a larger ring, for example, the others take a microsecond.
"""

from __future__ import annotations

import gc
import signal
import time
from pathlib import Path
from threading import get_native_id
from typing import TYPE_CHECKING

import torch

import splatview
from benchmarks.crowd import Crowd
from benchmarks.gpu import tried
from benchmarks.gpu.clocks import mid_and_p99, until
from splatview.api import session as publishing
from splatview_ipc.shm.control_block import COPIES
from splatview_ipc.transports import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS, BLOCK = 6, 1.0
"""How often each kind of company gets its turn, and its seconds."""
GAUSSIANS = 100_000
STRANGERS, KILLED = "ten strangers killed a second", "ten viewers killed a second"


def run() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    torch.set_num_threads(1)
    with Crowd() as crowd:
        for what, device, make in _values():
            try:
                rows += tried(what, lambda w=what, d=device, m=make: _measure(crowd, w, d, m()))
            finally:
                splatview.close()
                gc.collect()
    return rows


def _values() -> list[tuple[str, str, Callable[[], Callable[[int], None]]]]:
    """What is published, where it lies, and how a call is made that publishes it."""
    found = [("a 640x360 RGBA8 image", "cpu", lambda: _image("cpu")),
             (f"a scene of {GAUSSIANS:,}, stepped in place", "cpu", lambda: _scene("cpu"))]
    if torch.cuda.is_available():
        found += [("a new 640x360 RGBA8 tensor", "cuda", lambda: _image("cuda")),
                  (f"a scene of {GAUSSIANS:,}, stepped in place", "cuda", lambda: _scene("cuda"))]
    return found


def _image(device: str) -> Callable[[int], None]:
    base = torch.zeros(360, 640, 4, dtype=torch.uint8, device=device)
    if device == "cpu":
        return lambda i: splatview.publish(base, "frame", step=i)
    return lambda i: splatview.publish(base + 1, "frame", step=i)


def _scene(device: str) -> Callable[[int], None]:
    shapes = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
    scene = {name: torch.zeros(GAUSSIANS, *shape, device=device) for name, shape in shapes.items()}
    return lambda i: splatview.publish(scene, "scene", step=i)


def _measure(crowd: Crowd, what: str, device: str, publish: Callable[[int], None]) -> list[dict[str, str]]:
    publish(0)
    times: dict[str, list[int]] = {"none": [], "a second one": [], "a stopped one": [], STRANGERS: [], KILLED: []}
    waits = dict.fromkeys(times, 0)
    waits["none"] += _block(publish, times["none"])
    crowd.viewer("steady")
    crowd.viewer("second")
    stream = next(iter(publishing.session().published.values())).stream
    until("two viewers look", lambda: stream.readers >= 2, meanwhile=lambda: (publish(0), time.sleep(0.01)))
    _block(publish, [])  # the first frames are not like the others
    sharing = "+".join(name for name in TRANSPORTS if stream.offer(name) is not None)
    kills = 0
    # Victims live as long as it takes to come to the middle of something: on a GPU they begin with a CUDA context.
    life = 0.25 if device == "cpu" else 1.5
    try:
        for i in range(ROUNDS):
            turns = ["a second one", "a stopped one", STRANGERS, KILLED]
            for company in turns[i % 4:] + turns[:i % 4]:
                before = 0
                if company == "a stopped one":
                    crowd.signal("second", signal.SIGSTOP)
                elif company in (STRANGERS, KILLED):
                    before = crowd.churn(0.1, life, device if company == STRANGERS else "")
                    _block(publish, [], life)
                else:
                    time.sleep(0.05)
                waits[company] += _block(publish, times[company])
                if company == "a stopped one":
                    crowd.signal("second", signal.SIGCONT)
                elif company in (STRANGERS, KILLED):
                    kills += (crowd.churn(0.0) - before) * (company == KILLED)
                    until("the dead are forgotten", lambda: stream.readers <= 2)
    finally:
        crowd.signal("steady", signal.SIGKILL)
        crowd.signal("second", signal.SIGKILL)
    return [_row(what, device, sharing, company, times, waits, kills) for company in times]


def _block(publish: Callable[[int], None], times: list[int], seconds: float = BLOCK) -> int:
    """Publish for so long; how often the thread waited."""
    publisher = publishing.begun()
    assert publisher is not None
    words, looked_at = publisher.control.words, any(s.readers for s in publisher.streams.values())
    clock, end, before, i = time.perf_counter_ns, time.monotonic() + seconds, _waits(), 0
    while time.monotonic() < end:
        i += 1
        copies = words[COPIES]
        begin = clock()
        publish(i)
        took = clock() - begin
        if words[COPIES] > copies or not looked_at:
            times.append(took)
        if torch.cuda.is_initialized() and not i % 64:
            torch.cuda.synchronize()  # not a queue of a minute's copies
    return _waits() - before


def _waits() -> int:
    text = Path(f"/proc/self/task/{get_native_id()}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def _row(what: str, device: str, sharing: str, company: str, times: dict[str, list[int]], waits: dict[str, int],
         kills: int) -> dict[str, str]:
    median, p99 = mid_and_p99(times[company])
    row = {"publish of": what, "on": device, "by": sharing if company != "none" else "", "beside a viewer": company,
           "calls": f"{len(times[company]):,}", "killed": str(kills) if company == KILLED else "",
           "median us": f"{median:.1f}", "p99 us": f"{p99:.1f}",
           "waits in 1000": f"{waits[company] / len(times[company]) * 1e3:.2f}"}
    if company not in ("none", "a second one"):
        usual = mid_and_p99(times[STRANGERS if company == KILLED else "a second one"])
        row |= {"ratio": f"{median / usual[0]:.2f}", "ratio of p99": f"{p99 / usual[1]:.2f}"}
    return row
