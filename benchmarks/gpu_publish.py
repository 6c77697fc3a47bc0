"""Measure what `publish` of CUDA tensors costs the trainer, with a viewer.

Its thread, its Python, its GPU memory.

The scene has six tensors. "limit alone" is what nothing could do without: a CUDA event
record with a prepared stream object, the launch of the device copy. They take turns
with `publish`, so that both meet the same machine. "In a training" the calls stand
where a trainer has them: behind a step that launches its kernels and waits for the
loss, the GPU kept busy until the next step is due, 100 times a second. A thread that
sleeps instead finds all caches cold. Tensors in place are marked at most 60 times a
second: "marked" are those calls, the other rows are all calls. The last pixel that the
viewer shows must be of the colour that was published last.
"""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

import splatview
from benchmarks.gpu.load import Training
from benchmarks.gpu.scenes import ball, paint
from benchmarks.gpu.viewer import Viewer
from benchmarks.harness import mid_and_p99, require_gpu, tried, wait_until
from splatview.api import session as publishing
from splatview_ipc.shm.control_block import COPIES

if TYPE_CHECKING:
    from collections.abc import Callable

SCENE = 1_000_000
LARGE = 6_000_000
CALLS = 2000
COLD_CALLS = 500
PACE = 1 / 100
"""Seconds of a step, where it is a share of a step that counts."""
TRAINED = 100_000
"""Gaussians of the training whose steps are paced."""
PUBLISHES = 10_000
DENSIFICATIONS = 100
MIB = float(1 << 20)
Rgb = tuple[float, float, float]


def run() -> list[dict[str, str]]:
    require_gpu()
    rows = []
    for title, measure in {
        "publish of a scene": _scene,
        "publish of an image": _image,
        "memory": _memory,
    }.items():
        try:
            rows += tried(title, measure)
        finally:
            splatview.close()
            gc.collect()
    return rows


def _scene() -> list[dict[str, str]]:
    scene = ball(SCENE)
    state = [0.0]

    def change() -> None:
        scene["means"].add_(state[0])

    def publish() -> None:
        splatview.publish(scene)

    def step() -> None:
        change()
        publish()
        time.sleep(0.01)

    record = _event_record()
    publish()
    rows = []
    with Viewer() as viewer:
        path = " > ".join(viewer.ready(step)["path"])
        _go_on(step)
        publish_ns, record_ns, marked = _in_turns(change, publish, record)
        rows.append(
            _row(
                f"6-tensor scene of {SCENE:,}, storages unchanged, back to back",
                publish_ns,
                record_ns,
                "median 3 us",
                path,
            )
        )
        rows += _marked_rows(marked, record_ns, path)
        publish_ns, record_ns, marked = _in_turns(
            change, publish, record, 0.002, COLD_CALLS
        )
        rows.append(
            _row(
                "... the thread asleep for 2 ms before each call",
                publish_ns,
                record_ns,
                "",
                path,
            )
        )
        rows += _marked_rows(marked, record_ns, path)
        _shows(viewer, lambda rgb: (paint(scene, rgb), publish()), "the scene")
    splatview.close()
    return rows + _in_training(record)


def _image() -> list[dict[str, str]]:
    base = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")
    targets = [torch.empty_like(base) for _ in range(4)]
    latest: dict[str, Any] = {"i": 0, "image": base}

    def change() -> None:
        # A tensor that was not published before.
        latest["image"] = base + latest["i"] % 251
        latest["i"] += 1

    def publish() -> None:
        splatview.publish(latest["image"], "frame")

    def copy() -> None:
        targets[latest["i"] % 4].copy_(latest["image"])

    def step() -> None:
        change()
        publish()
        time.sleep(0.01)

    def show(rgb: Rgb) -> None:
        colour = [round(255 * v) for v in rgb]
        latest["image"] = (
            torch.tensor([*colour, 255], dtype=torch.uint8, device="cuda")
            .expand(1080, 1920, 4)
            .clone()
        )
        publish()

    rows = []
    with Viewer() as viewer:
        path = " > ".join(viewer.ready(step)["path"])
        _go_on(step)
        publish_ns, copy_ns, _ = _in_turns(change, publish, copy)
        rows.append(
            _row(
                "new 1080p RGBA8 tensor, back to back",
                publish_ns,
                copy_ns,
                "median 12 us",
                path,
            )
        )
        publish_ns, copy_ns, _ = _in_turns(change, publish, copy, 0.002, COLD_CALLS)
        rows.append(
            _row(
                "... the thread asleep for 2 ms before each call",
                publish_ns,
                copy_ns,
                "",
                path,
            )
        )
        _shows(viewer, show, "the image")
    return rows


def _go_on(step: Callable[[], object], seconds: float = 1.0) -> None:
    """Publish until the viewer has settled.

    The first pictures of a viewer, and the first without its panel, are not like the
    others.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()


def _event_record() -> Callable[[], Any]:
    from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]  (it has no stubs)

    flags = (
        driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        | driver.CUevent_flags.CU_EVENT_INTERPROCESS
    )
    error, event = driver.cuEventCreate(flags)
    assert int(error) == 0
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    record = driver.cuEventRecord

    def alone() -> None:
        record(event, stream)

    return alone


def _in_turns(
    change: Callable[[], None],
    call_ours: Callable[[], None],
    call_bare: Callable[[], Any],
    pause: float = 0.0,
    calls: int = CALLS,
) -> tuple[list[int], list[int], list[int]]:
    """Return the nanoseconds of the calling thread for each call of both."""
    clock = time.perf_counter_ns
    times: tuple[list[int], list[int]] = ([], [])
    marked: list[int] = []
    shared_before = _shared()
    for i in range(calls + 50):
        for call, spent in zip((call_ours, call_bare), times, strict=True):
            change()
            if pause:
                time.sleep(pause)
            started_ns = clock()
            call()
            elapsed_ns = clock() - started_ns
            shared_after = _shared()
            if i >= 50:
                spent.append(elapsed_ns)
                marked.extend([elapsed_ns] * (shared_after > shared_before))
            shared_before = shared_after
    torch.cuda.synchronize()
    return *times, marked


def _shared() -> int:
    """Return how many versions this process has marked or copied for its viewers."""
    publisher = publishing.started_publisher()
    if publisher is None:
        return 0
    return publisher.control.words[COPIES]


def _marked_rows(marked: list[int], bare: list[int], path: str) -> list[dict[str, str]]:
    if marked:
        return [
            _row(
                f"... ... of these the {len(marked):,} that were marked",
                marked,
                bare,
                "",
                path,
            )
        ]
    return []


def _row(
    title: str, ours_ns: list[int], bare_ns: list[int], target: str, path: str
) -> dict[str, str]:
    median, p99 = mid_and_p99(ours_ns)
    bare_median, bare_p99 = mid_and_p99(bare_ns)
    return {
        "what": title,
        "median": f"{median:.1f} us",
        "p99": f"{p99:.1f} us",
        "limit alone, median / p99": f"{bare_median:.1f} / {bare_p99:.1f} us",
        "target": target,
        "way": path,
    }


def _shows(viewer: Viewer, show: Callable[[Rgb], Any], title: str) -> None:
    """Check that the viewer's picture follows: red, then blue."""
    for rgb in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0)):
        show(rgb)

        def follows(rgb: Rgb = rgb) -> bool:
            pixel = viewer.pixel()
            return all(abs(p - 255 * v) < 60 for p, v in zip(pixel, rgb, strict=True))

        wait_until(f"{title} in the colour {rgb}; it is {viewer.pixel()}", follows, 10)


def _in_training(record: Callable[[], Any]) -> list[dict[str, str]]:
    """Measure the calling thread's time behind the steps of a training."""
    training = Training(TRAINED)
    publish_ns: list[int] = []
    bare: list[int] = []
    empty: list[int] = []
    marked: list[int] = []
    clock = time.perf_counter_ns
    keep_busy = _busy_until()

    def publish() -> None:
        splatview.publish(training.scene, meta={"step": training.steps})

    def nothing() -> None:
        pass

    def step() -> None:
        training.step()
        publish()
        keep_busy(clock() + int(PACE * 1e9 / 2))

    publish()
    with Viewer() as viewer:
        path = " > ".join(viewer.ready(step)["path"])
        helpers = [t for t in threading.enumerate() if t.name.startswith("splatview")]
        assert helpers, (
            f"publish started no helper thread; there are {[t.name for t in threading.enumerate()]}"
        )
        for _ in range(50):
            step()
        cpu = _thread_cpu_ns(helpers)
        started_ns = clock()
        steps = 0
        late = 0
        shared_before = _shared()
        while clock() - started_ns < 12e9:
            training.step()
            call, spent = ((publish, publish_ns), (record, bare), (nothing, empty))[
                steps % 3
            ]
            a = clock()
            call()
            elapsed_ns = clock() - a
            spent.append(elapsed_ns)
            if call is not publish:
                publish()
            elif _shared() > shared_before:
                marked.append(elapsed_ns)
            shared_before = _shared()
            steps += 1
            late += keep_busy(started_ns + int(steps * PACE * 1e9))
        rate = steps / (clock() - started_ns) * 1e9
        helper = (_thread_cpu_ns(helpers) - cpu) / steps
    mean, bare_mean, no_time = (
        sum(spent) / len(spent) for spent in (publish_ns, bare, empty)
    )
    return [
        _row(
            f"6-tensor scene of {TRAINED:,} in a training of {rate:.0f} steps/s",
            publish_ns,
            bare,
            "median 30 us",
            path,
        ),
        *_marked_rows(marked, bare, path),
        {
            "what": f"trainer's time per step there, 100 steps/s ({late} of {steps} steps were late)",
            "median": f"{mean / 1e3:.1f} us in publish - {no_time / 1e3:.1f} in an empty call + {helper / 1e3:.1f} "
            f"of the helper thread (means) = {(mean - no_time + helper) * 1e-9 / PACE:.3%}",
            "limit alone, median / p99": f"{bare_mean / 1e3:.1f} us (mean)",
            "target": "0.3 %",
        },
    ]


def _thread_cpu_ns(threads: list[threading.Thread]) -> int:
    """Return the processor time of these threads so far, in ns."""
    total = 0
    for thread in threads:
        if thread.ident is not None and thread.is_alive():
            total += time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
    return total


def _busy_until() -> Callable[[int], bool]:
    """Return a function that keeps GPU and thread at a trainer's work.

    Returns whether the moment had passed already.
    """
    weights = torch.rand(1024, 1024, device="cuda")

    def keep_busy(end_ns: int) -> bool:
        late = time.perf_counter_ns() > end_ns
        while time.perf_counter_ns() < end_ns:
            (weights @ weights).mean().item()
        return late

    return keep_busy


def _memory() -> list[dict[str, str]]:
    """Measure the GPU memory of the trainer.

    As torch's allocator counts it, and as the driver does.
    """
    scene = ball(LARGE)
    torch.cuda.synchronize()
    splatview.publish(scene)
    _settle()
    torch_before = torch.cuda.memory_allocated()
    of_driver = _by_driver()
    rows = []
    with Viewer() as viewer:
        viewer.ready(lambda: (splatview.publish(scene), time.sleep(0.01)))
        _settle()
        torch_after = torch.cuda.memory_allocated()
        driver_after = _by_driver()
        if of_driver and driver_after:
            driver_text = f"{driver_after - of_driver:+.0f} MiB by the driver"
        else:
            driver_text = "not told by the driver"
        rows.append(
            {
                "what": f"GPU memory added by exporting a scene of {LARGE:,}",
                "median": f"{(torch_after - torch_before) / MIB:+.1f} MiB in torch, {driver_text}",
                "target": "0",
            }
        )
        rows.append(_growth(viewer, scene))
    return rows


def _growth(viewer: Viewer, large: dict[str, torch.Tensor]) -> dict[str, str]:
    """Measure the growth over 10,000 publishes, a densification after every 100.

    Storages and N change. The scene is 1M, as in a training.
    """
    scene = {name: t[:SCENE].clone() for name, t in large.items()}
    large.clear()
    splatview.publish(scene)
    wait_until(
        "the small scene",
        lambda: f"{SCENE:,} Gaussians" in viewer.request("state")["details"],
        20,
        lambda: (splatview.publish(scene), time.sleep(0.01)),
    )
    _settle()
    torch_start = torch.cuda.memory_allocated()
    driver_begin = _by_driver()
    peak = 0
    for i in range(PUBLISHES):
        if i % (PUBLISHES // DENSIFICATIONS) == 0:
            n = SCENE + (1000 if i // (PUBLISHES // DENSIFICATIONS) % 2 == 0 else 0)
            grown = {
                name: torch.cat([t, t[: max(n - len(t), 0)]])[:n].clone()
                for name, t in scene.items()
            }
            scene = grown
            del grown
        scene["means"].add_(0.0)
        splatview.publish(scene)
        peak = max(peak, torch.cuda.memory_allocated())
        time.sleep(0.0005)
    paint(scene, (0.0, 1.0, 0.0))
    splatview.publish(scene)
    wait_until(
        "the last scene, green",
        lambda: viewer.pixel()[1] > 180 > 2 * viewer.pixel()[0],
        10,
    )
    wait_until(
        "what was replaced to be let go",
        lambda: torch.cuda.memory_allocated() - torch_start < MIB,
        6,
    )
    _settle()
    end = torch.cuda.memory_allocated()
    driver_end = _by_driver()
    if driver_begin and driver_end:
        driver_text = f"{driver_end - driver_begin:+.0f} MiB by the driver (torch's cache included)"
    else:
        driver_text = "not told by the driver"
    return {
        "what": f"... grown after {PUBLISHES:,} publishes and {DENSIFICATIONS} densifications of {SCENE:,}",
        "median": f"{(end - torch_start) / MIB:+.1f} MiB in torch, {driver_text}; most in between "
        f"{(peak - torch_start) / MIB:+.0f} MiB",
        "target": "constant",
    }


def _by_driver() -> float | None:
    """Return the MiB of this process as nvidia-smi tells them.

    None where it does not (containers often hide processes).
    """
    listed = subprocess.run(
        [
            "nvidia-smi",
            "--query-compute-apps=pid,used_memory",
            "--format=csv,noheader,nounits",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    ).stdout
    rows = [line.split(", ") for line in listed.splitlines()]
    return next(
        (
            float(used)
            for pid, used in rows
            if pid == str(os.getpid()) and used.isdigit()
        ),
        None,
    )


def _settle() -> None:
    gc.collect()
    torch.cuda.synchronize()
    time.sleep(1.2)  # a replaced generation is kept a second at most
    torch.cuda.empty_cache()
