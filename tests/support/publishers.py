"""Programs that publish, as text for `python -c`. Each prints a line when something is done."""

from __future__ import annotations

IMAGE = """
import sys, time, torch, splatview
value, name = int(sys.argv[1]), sys.argv[2]
i = 0
while True:
    image = torch.full((40, 60, 3), value, dtype=torch.uint8)
    image[0, 0] = torch.tensor([255, 0, 0], dtype=torch.uint8)
    splatview.publish(image, name, step=i)
    i += 1
    time.sleep(0.02)
"""
"""Arguments: grey value, stream's name."""

BOTH = """
import time, torch, splatview
g = torch.Generator().manual_seed(0)
means = torch.randn(300, 3, generator=g)
splats = {"means": means, "quats": torch.randn(300, 4, generator=g), "scales": torch.full((300, 3), -2.0),
          "opacities": torch.full((300,), 3.0),
          "sh0": torch.rand(300, 1, 3, generator=g), "shN": torch.zeros(300, 0, 3)}
while True:
    splatview.publish(torch.rand(30, 40, 3), "render")
    splatview.publish(splats, "splats", step=7)
    splatview.wait_while_paused()
    time.sleep(0.02)
"""
