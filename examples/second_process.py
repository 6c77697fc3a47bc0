"""Read what another process publishes, and publish the edges of each picture.

Run `splatview serve` in another terminal: it shows both. Neither process waits for the
other; this one takes the newest picture whenever it is ready, and those that came in
between are passed over.
"""

import argparse
import multiprocessing
import time

import torch

import splatview


def publish_rings() -> None:
    """Publish rings that run outwards, 60 times a second, while the parent lives."""
    rows = torch.linspace(-3, 3, 360)
    columns = torch.linspace(-4, 4, 480)
    distance = torch.hypot(rows[:, None], columns)
    parent = multiprocessing.parent_process()
    step = 0
    while parent is not None and parent.is_alive():
        rings = 0.5 + 0.5 * torch.sin(8 * distance - 0.1 * step)
        image = torch.stack([rings, 0.7 * rings, rings**4], -1)
        splatview.publish(image, "rings", meta={"step": step})
        time.sleep(1 / 60)
        step += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="pictures to look at")
    steps = parser.parse_args().steps

    spawn = multiprocessing.get_context("spawn")
    publisher = spawn.Process(target=publish_rings, daemon=True)
    publisher.start()
    with splatview.frames("rings", run=str(publisher.pid), timeout=60) as frames:
        for _, frame in zip(range(steps), frames, strict=False):
            # The tensor is a copy that belongs to this process.
            grey = frame.tensor.mean(-1)  # (360, 480)
            dy, dx = torch.gradient(grey)
            edges = (12 * torch.hypot(dx, dy)).clamp(0, 1)
            splatview.publish(edges, "edges", meta={"of": frame.version})
    print(f"{frames.skipped} pictures were passed over")
