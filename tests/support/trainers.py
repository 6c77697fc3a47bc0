"""A training process that runs the pieces of code that a test sends."""

from __future__ import annotations

import json
import os
import select
from typing import Any

from support.programs import Programs
from support.wait import PATIENCE_S

ALLOCATORS = {"cudaMalloc": "", "expandable": "expandable_segments:True"}

_LOOP = """
import gc, json, os, sys, threading, time, traceback
import torch, splatview
from splatview.api import session as publishing
SHAPES = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}
def make(n, value, device="cuda"):
    return torch.nn.ParameterDict({
        name: torch.nn.Parameter(torch.full((n, *shape), float(value), device=device))
        for name, shape in SHAPES.items()})
def fill(scene, value):
    with torch.no_grad():
        for p in scene.values():
            p.fill_(value)
def stream(name="gaussians"):
    return publishing.started_publisher().streams[name]
def memory():
    "What torch has allocated once all is quiet; it keeps nothing beside."
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()
def open_files():
    return len(os.listdir("/proc/self/fd"))
def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.002)
line = answer = None
world = globals()
known = {*world, "known"}
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    world["answer"] = None
    try:
        exec(json.loads(line), world)
        print(json.dumps({"answer": world["answer"]}), flush=True)
    except BaseException:
        print(json.dumps({"error": traceback.format_exc()}), flush=True)
"""


class Trainer:
    """A program that publishes; `do` runs a piece of it."""

    def __init__(self, programs: Programs, allocator: str = "", **env: str):
        """Start the process; `allocator` is its PYTORCH_CUDA_ALLOC_CONF."""
        if allocator:
            env |= {
                "PYTORCH_CUDA_ALLOC_CONF": allocator,
                "PYTORCH_ALLOC_CONF": allocator,
            }
        self.process = programs.code(_LOOP, **env)
        self._busy = False
        assert self.process.line() == '"ready"', self.process.end()[1]

    def do(self, code: str, timeout: float = PATIENCE_S) -> Any:
        """Run code and wait; return what it left in `answer`."""
        self.start(code)
        return self.finish(timeout)

    def start(self, code: str) -> None:
        """Run code without waiting; `finish` waits for it."""
        self._busy = True
        self.process.write_line(json.dumps(code))

    def finish(self, timeout: float = PATIENCE_S) -> Any:
        line = self.process.line(timeout)
        assert line, f"the trainer ended; it said: {self.process.end()[1]}"
        report = json.loads(line)
        self._busy = False
        assert "error" not in report, f"in the trainer:\n{report['error']}"
        return report["answer"]

    def finished(self) -> bool:
        """Return whether `finish` would not have to wait."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def prepare_next_run(self) -> bool:
        """End the run, for another test to use the process.

        The next run will be in the present runtime folder.

        Returns:
            False when the process is of no use any more.
        """
        if self._busy or self.process.poll() is not None:
            return False
        try:
            self.do(f"""
splatview.close()
for name in set(world) - known:
    del world[name]
world["answer"] = None
os.environ["SPLATVIEW_RUNTIME_DIR"] = {os.environ["SPLATVIEW_RUNTIME_DIR"]!r}
memory()
""")
        except AssertionError:
            return False
        return True
