"""Train with nerfview around the training, which draws by the same function as ours.

`python -m benchmarks.gpu.nerfview_training`

Commands come as lines of JSON, as in `driver`:

| do | what |
|---|---|
| train, n=, size=, device= | make the training, without a viewer |
| measure, mode=still or moving, seconds=, script= | train with nerfview and a client |

The loop does what gsplat 1.5.3's examples/simple_trainer.py does. The client is that of
the peer's script.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from typing import Any

import torch

from benchmarks.gpu.deformation import TIME, DeformedTraining, draw_at
from benchmarks.gpu.load import train
from benchmarks.harness import serve_requests
from splatview.demo.views import DatasetView

_START_S = 30.0
"""Seconds until the client has its first picture."""
_SETTLE_S = 1.2
_WITHOUT_S = 2.0


class NerfviewTraining:
    """The training, and the viewer of nerfview in the same process."""

    def do_train(self, n: int, size: tuple[int, int], device: str) -> None:
        """Make the training, and nerfview's viewer without a client."""
        import nerfview  # type: ignore[import-not-found]
        import viser  # type: ignore[import-not-found]

        self._training = DeformedTraining(n, size, device)
        self._device = device
        train(self._training, 1.5)
        server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
        self._viewer = nerfview.Viewer(server, self._draw, mode="training")

    @torch.no_grad()
    def _draw(self, camera: Any, tab: Any) -> Any:
        """Draw for nerfview, as simple_trainer does."""
        width = tab.viewer_width
        height = tab.viewer_height
        c2w = torch.from_numpy(camera.c2w).float().to(self._device)
        K = torch.from_numpy(camera.get_K((width, height))).float().to(self._device)
        view = DatasetView(torch.linalg.inv(c2w), K, width, height)
        rgb = draw_at(self._training.module, TIME, view).rgb
        return rgb.clamp(0, 1).cpu().numpy()

    def _step(self) -> None:
        """Do a step under nerfview's lock, and have it draw if that is due."""
        viewer = self._viewer
        width, height = self._training.size
        with viewer.lock:
            started_at = time.time()
            self._training.step()
        step_s = max(time.time() - started_at, 1e-10)
        viewer.render_tab_state.num_train_rays_per_sec = width * height / step_s
        viewer.update(self._training.steps, width * height)

    def do_measure(self, mode: str, seconds: float, script: str) -> dict[str, Any]:
        """Return the speed with a client, over that without one before and after."""
        pace_before = train(self._training, _WITHOUT_S)
        with _Client(script, self._viewer.server.get_port(), mode) as client:
            client.wait(self._step)
            start = time.monotonic() + _SETTLE_S
            end = start + seconds
            client.send_times(start, end)
            step_ends = [time.monotonic()]
            while step_ends[-1] < end:
                self._step()
                step_ends.append(time.monotonic())
            report = client.result()
        pace_after = train(self._training, _WITHOUT_S)
        steps = sum(start <= step_end < end for step_end in step_ends)
        stalls = [
            min(later, end) - max(earlier, start)
            for earlier, later in itertools.pairwise(step_ends)
        ]
        rate = steps / seconds
        return {
            "rate": rate,
            "ratio": rate / ((pace_before.rate + pace_after.rate) / 2),
            "worst_ms": max(stalls) * 1e3,
            "pictures_s": report["fps"],
            "size": report["size"],
            "gap_ms": report["gap_ms"],
        }


class _Client:
    """The peer's program that looks, as a context manager. It is ended on the way out."""

    def __init__(self, script: str, port: int, mode: str) -> None:
        command = [sys.executable, script, "--client", str(port), "--mode", mode]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._is_ready = threading.Event()
        self._answers: list[dict[str, Any]] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                self._is_ready.set()
            elif line.startswith("{"):
                self._answers.append(json.loads(line))

    def wait(self, step: Any) -> None:
        """Train until the client has a picture."""
        end = time.monotonic() + _START_S
        while not self._is_ready.is_set():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("nerfview's client got no picture")
            step()

    def send_times(self, start: float, end: float) -> None:
        """Have it count from one time to another, and move its camera until then."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{start} {end}\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Return what it counted."""
        self._process.wait(20)
        self._listener.join(5)
        if not self._answers:
            raise RuntimeError("nerfview's client ended without a result")
        return self._answers[-1]

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    # `reply` has the other to itself.
    sys.stdout = sys.stderr
    serve_requests(NerfviewTraining())
