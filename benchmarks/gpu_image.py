"""An image stream without a copy: what the GPU does for a new 1080p frame over the draw alone, and the viewer's memory.

The draw alone is the same view, with the same fragment shader, over a plain texture, in turns with ours and between
timestamps on the GPU. The viewer whose memory is counted is `splatview serve`, as a user starts it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import torch

import splatview
from benchmarks.gpu import memory, require_gpu, tried
from benchmarks.gpu.image_viewer import pattern
from benchmarks.gpu.viewer import ROOT, Viewer

FRAMES = 200
RATE = 120.0


def run() -> list[dict[str, str]]:
    require_gpu()
    base = torch.from_numpy(pattern()).cuda()
    colour = torch.tensor([1, 1, 1, 0], dtype=torch.uint8, device="cuda")
    rows = []
    stop = threading.Event()

    def train() -> None:
        k = 0
        while not stop.is_set():
            splatview.publish(base + colour * (k % 256), "frame")
            k += 1
            time.sleep(1 / RATE)

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        rows += tried("GPU work per displayed frame", _work)
        rows += tried("GPU memory of an image-only viewer", _footprint)
    finally:
        stop.set()
        trainer.join()
        splatview.close()
    return rows


def _work() -> list[dict[str, str]]:
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu.image_viewer", str(FRAMES)], cwd=ROOT, timeout=120,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"the image viewer ended with {done.returncode}")
    told = json.loads(done.stdout.splitlines()[-1])
    plain = (told["plain_us"] + told["again_us"]) / 2
    assert told["compared"] == FRAMES // 10
    return [{"what": "GPU work per displayed 1080p RGBA8 frame",
            "ours": f"{told['ours_us']:.1f} us; drawn once more {told['ours_again_us']:.1f} us; "
                    f"with taking over the new frame {told['whole_us']:.1f} us",
            "draw alone": f"{plain:.1f} us",
            "ratio": "; ".join(f"{told[name] / plain:.3f}" for name in ("ours_us", "ours_again_us", "whole_us")),
            "target": "1.02",
            "way": " > ".join(told["path"]) + (", torch loaded" if told["torch"] else ", no torch loaded"),
            "checked": f"every pixel of {told['compared']} frames"}]


def _footprint() -> list[dict[str, str]]:
    before = memory.used()
    with Viewer() as viewer:
        state = viewer.ready()
        time.sleep(2)
        own, all_of_it = memory.of_process(viewer.pid), memory.used() - before
        state = viewer.ask("state")
        pixel = viewer.pixel()
    sort, mib = own or ("not named by nvidia-smi: difference of the GPU's whole use", all_of_it)
    return [{"what": "GPU memory of an image-only viewer, 1920x1080", "ours": f"{mib:.0f} MiB ({sort}), "
            f"whole GPU {all_of_it:+.0f} MiB", "draw alone": "", "ratio": "", "target": "under 150 MB",
            "way": " > ".join(state["path"]) + (", CUDA context" if state["cuda"] else ", no CUDA context"),
            "checked": f"it shows a picture: its middle is {pixel}"}]
