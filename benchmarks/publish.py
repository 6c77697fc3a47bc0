"""Measure what `publish` costs the trainer, against a bare copy.

Without a viewer, with one, with a stopped one, with one that attaches.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
import zlib
from typing import TYPE_CHECKING

import torch

import splatview
from splatview.api import session as publishing

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME = (1080, 1920, 4)
ROUNDS = 300
ATTACHED = 0.1, 0.4, 0.6
"""GB of the frames beside which a viewer attaches."""
ATTACHES = 4
"""Viewers that attach beside each size, one after the other."""
MEASURED_AFTER_S = 1.0
"""Seconds for which calls are still measured when the viewer has its first frame."""
_VIEWER = """
import sys, time, zlib
from splatview_ipc.subscriber.subscriber import Subscriber
sub, seen = Subscriber(), 0
while True:
    sub.poll()
    for s in (s for s in sub.streams if s.name == "frame"):
        s.open()
        frame = s.read(seen)
        if frame is None: continue
        with frame:
            found = zlib.crc32(frame.tensors["image"].array)
            if frame.intact():
                seen = frame.version
                print(frame.meta.get("step") or seen, found, flush=True)
    time.sleep(1 / 60)
"""
"""Prints step or version of each frame, and a checksum of all its bytes."""


def run() -> list[dict[str, str]]:
    return [*_beside_a_viewer(), *map(_attached, ATTACHED)]


def _beside_a_viewer() -> list[dict[str, str]]:
    rows = [*_without_viewer()]
    viewer = subprocess.Popen(
        [sys.executable, "-c", _VIEWER], stdout=subprocess.PIPE, text=True
    )
    try:
        frame = torch.zeros(FRAME, dtype=torch.uint8)
        splatview.publish(frame, "frame")
        assert viewer.stdout is not None
        assert int(viewer.stdout.readline().split()[0]) >= 1
        rows.append(_against_copy("a viewer at 60 Hz", frame))
        viewer.send_signal(signal.SIGSTOP)
        rows.append(_against_copy("the viewer stopped (SIGSTOP)", frame))
        viewer.send_signal(signal.SIGCONT)
        frame.fill_(77)
        splatview.publish(frame, "frame")
        last = f"{publishing.session().published['frame'].stream.version} {zlib.crc32(frame.numpy().data)}\n"
        while viewer.stdout.readline() != last:  # the last frame arrives whole
            pass
    finally:
        viewer.kill()
        viewer.wait()
        splatview.close()
    return rows


def _without_viewer() -> list[dict[str, str]]:
    n = 100_000
    scene = torch.nn.ParameterDict(
        {
            "means": torch.zeros(n, 3),
            "quats": torch.zeros(n, 4),
            "scales": torch.zeros(n, 3),
            "opacities": torch.zeros(n),
            "sh0": torch.zeros(n, 1, 3),
            "shN": torch.zeros(n, 15, 3),
        }
    )
    image = torch.zeros(FRAME, dtype=torch.uint8)
    rows = []
    for value_name, limit, call in (
        ("an image", 5, lambda: splatview.publish(image, "frame")),
        (
            "a Gaussian scene, step=",
            5,
            lambda: splatview.publish(scene, "scene", meta={"step": 7}),
        ),
    ):
        call()
        us = _per_call(call)
        rows.append(
            {
                "publish of": value_name,
                "viewer": "none",
                "median us": f"{us:.2f}",
                "limit": f"{limit} us",
            }
        )
    publisher = publishing.started_publisher()
    assert publisher is not None
    assert publisher.control.counters()["copies"] == 0
    return rows


def _per_call(call: Callable[[], None], batch: int = 5000, batches: int = 41) -> float:
    """Median microseconds of one call, over batches."""
    times = []
    for _ in range(batches):
        started_at = time.perf_counter()
        for _ in range(batch):
            call()
        times.append((time.perf_counter() - started_at) / batch * 1e6)
    return statistics.median(times)


def _against_copy(viewer: str, frame: torch.Tensor) -> dict[str, str]:
    """Publish and copy in turn, so that both meet the same machine.

    There are as many targets as the ring has slots. As many targets as the ring has.
    """
    targets = [torch.zeros_like(frame) for _ in range(4)]
    publisher = publishing.started_publisher()
    assert publisher is not None
    copies = publisher.control.counters()["copies"]
    published = []
    copied = []
    for i in range(ROUNDS):
        frame.fill_(i % 256)
        started_at = time.perf_counter()
        splatview.publish(frame, "frame")
        published.append(time.perf_counter() - started_at)
        frame.fill_((i + 1) % 256)
        started_at = time.perf_counter()
        targets[i % 4].copy_(frame)
        copied.append(time.perf_counter() - started_at)
        time.sleep(1 / 200)  # a ring takes at most 240 frames a second
    assert publisher.control.counters()["copies"] >= copies + 0.95 * ROUNDS, (
        "frames were not copied"
    )
    publish_us = statistics.median(published) * 1e6
    copy_us = statistics.median(copied) * 1e6
    p99 = sorted(published)[int(ROUNDS * 0.99)] / sorted(copied)[int(ROUNDS * 0.99)]
    return {
        "publish of": "a 1080p RGBA8 frame",
        "viewer": viewer,
        "median us": f"{publish_us:.0f}",
        "bare copy, us": f"{copy_us:.0f}",
        "ratio": f"{publish_us / copy_us:.2f}",
        "ratio of p99": f"{p99:.2f}",
        "limit": "ratio 1.3",
    }


def _attached(gigabytes: float) -> dict[str, str]:
    """Attach one viewer after the other beside frames of a size.

    Time in which the thread waits for a processor is not counted, for calls and for
    bare copies (`_clock`); torch copies with one thread, since several wait for one
    another. The ratio of each time is given, the least first: what is left of other
    programs only adds to it, and memory that `publish` has to wait for costs it every
    time.
    """
    torch.set_num_threads(1)
    side = int((gigabytes * 1e9 / 4) ** 0.5)
    frame = torch.randint(256, (side, side, 4), dtype=torch.uint8)
    target = torch.zeros_like(frame)
    splatview.publish(frame, "frame", meta={"step": 0})
    try:
        attachments = [_attach(frame, target) for _ in range(ATTACHES)]
    finally:
        splatview.close()
    ratios = sorted(
        max(calls) / statistics.median(copies) for calls, copies, _, _ in attachments
    )
    calls, copies, _, _ = min(
        attachments,
        key=lambda attachment: max(attachment[0]) / statistics.median(attachment[1]),
    )
    peak = max(peak for _, _, peak, _ in attachments)
    return {
        "publish of": f"a {gigabytes} GB frame",
        "viewer": f"{ATTACHES} attach, {sum(count for _, _, _, count in attachments)} frames are right",
        "bare copy, us": f"{statistics.median(copies) * 1e6:.0f}",
        "worst call, us": f"{max(calls) * 1e6:.0f}",
        "worst copy, us": f"{max(copies) * 1e6:.0f}",
        "ratio": " ".join(f"{ratio:.2f}" for ratio in ratios),
        "shared memory": f"{peak / frame.nbytes:.2f} frames",
        "limit": "worst call 1.5 copies, 3.1 frames",
    }


def _attach(
    frame: torch.Tensor, target: torch.Tensor
) -> tuple[list[float], list[float], int, int]:
    """Publish while a viewer attaches, until it has read frames for a while.

    Each is numbered in its first byte, and the viewer reports a checksum of all its
    bytes.
    """
    first = frame.view(-1)[:1]
    bytes_of_frame = frame.view(-1).numpy()
    stream = publishing.session().published["frame"].stream
    viewer = subprocess.Popen([sys.executable, "-c", _VIEWER], stdout=subprocess.PIPE)
    calls = []
    copies = []
    peak = 0
    end = 0.0
    reports = b""
    try:
        assert viewer.stdout is not None
        os.set_blocking(viewer.stdout.fileno(), False)
        while not end or time.monotonic() < end:
            assert viewer.poll() is None, "the viewer has ended"
            opened = stream.readers
            step = stream.version + 1
            first.fill_(step % 256)
            started_at = _clock()
            splatview.publish(frame, "frame", meta={"step": step})
            published_at = _clock()
            target.copy_(frame)
            if opened:
                calls.append(published_at - started_at)
                copies.append(_clock() - published_at)
            peak = max(peak, _shared())
            reports += viewer.stdout.read() or b""
            if reports and not end:
                end = time.monotonic() + MEASURED_AFTER_S
            time.sleep(0.005)
    finally:
        viewer.kill()
        viewer.wait()
    read = [
        tuple(map(int, line.split()))
        for line in reports.splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    for step_read, checksum in {read[0], read[-1]}:
        first.fill_(step_read % 256)
        assert zlib.crc32(bytes_of_frame.data) == checksum, (
            f"frame {step_read} did not arrive as it was published"
        )
    while stream.readers:
        time.sleep(0.01)
    return calls, copies, peak, len(read)


def _clock() -> float:
    """Return seconds, without those in which this thread waited for a processor."""
    with open("/proc/thread-self/schedstat") as f:
        return time.perf_counter() - int(f.read().split()[1]) / 1e9


def _shared() -> int:
    """Return the bytes of shared memory that this process has allocated."""
    bytes_of = {}
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:splatview-"):
                info = os.stat(path)
                bytes_of[info.st_ino] = info.st_blocks * 512
        except OSError:  # the listing's own
            continue
    return sum(bytes_of.values())
