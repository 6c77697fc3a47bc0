"""Trainers that publish from a GPU, and a viewer that tells what it made of CUDA, as text for `python -c`."""

from __future__ import annotations

PATTERN = """
import torch
H, W = 48, 64
FORMS = [(d, s) for d in ("uint8", "float16", "bfloat16", "float32") for s in ("HWC", "CHW")]
FORMS += [("uint8", "HW"), ("uint8", "RGBA"), ("float32", "HW")]

def pattern(k, dtype, sort):
    channels = {"HWC": 3, "CHW": 3, "HW": 1, "RGBA": 4}[sort]
    y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    values = torch.stack([(x * 4 + y * 3 * (c + 1) + 37 * k + 50 * c) % 256 for c in range(channels)], -1)
    t = values.to(torch.uint8) if dtype == "uint8" else (values / 255).to(getattr(torch, dtype))
    return {"HW": t[..., 0], "CHW": t.permute(2, 0, 1)}.get(sort, t).contiguous()

def scene(k):
    g = torch.Generator().manual_seed(k)
    n = 1500 + 700 * k
    means = torch.randn(n, 3, generator=g)
    means = means / means.norm(dim=1, keepdim=True)
    return {"means": means, "quats": torch.randn(n, 4, generator=g), "scales": torch.full((n, 3), -2.6),
            "opacities": 1.0 + torch.rand(n, generator=g), "sh0": torch.rand(n, 1, 3, generator=g) * 2 - 1,
            "shN": torch.randn(n, 3, 3, generator=g) * 0.1}
"""
"""What trainers publish and tests expect: `pattern(k, dtype, sort)` and `scene(k)`, on the CPU."""

TRAINER = PATTERN + """
import select, sys, time, splatview
images = {(d, s): pattern(0, d, s).cuda() for d, s in FORMS}
splats = {n: t.cuda() for n, t in scene(0).items()}
k = 0
print("ready", flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    if select.select([sys.stdin], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        k += 1
        for (d, s), t in images.items():
            t.copy_(pattern(k, d, s))
        splats = {n: t.cuda() for n, t in scene(k).items()}  # a densification: other storages, more Gaussians
    for (d, s), t in images.items():
        splatview.publish(t, f"in-place {d} {s}", copy=False, step=k)
        splatview.publish(t.clone(), f"ring {d} {s}", copy=True, step=k)
    splatview.publish(splats, "splats", step=k, sh_degree=1)
    time.sleep(0.01)
"""
"""Publishes every form of image in both ways, and a scene, until its input ends. A line of input: the next k."""


VIEWER = """
import json, sys, time
from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.screens.offscreen import OffscreenScreen
app = App(OffscreenScreen(64, 48), AppOptions(panel=False, max_fps=500))
seen, end = {}, time.monotonic() + 50
for name in sys.argv[1:]:
    while name not in seen and time.monotonic() < end:
        step(app)
        slot = next((s for s in app.catalogue.slots.values() if s.entry.name == name), None)
        if slot is None:
            continue
        app.seat.select(slot.entry.key)
        if slot.view is not None and not slot.view.empty:
            for _ in range(30):
                step(app)
            pixels = app.screen.pixels()[..., :3]
            seen[name] = {"path": slot.view.path, "way": slot.source.path, "notes": slot.source.notes,
                          "fault": slot.entry.fault, "pixels": pixels.reshape(-1, 3)[::97].tolist()}
from cuda.bindings import driver
error, device = driver.cuDeviceGet(0)
active = -1
if int(error) == 0:
    active = driver.cuDevicePrimaryCtxGetState(device)[2]
current = int(driver.cuCtxGetCurrent()[1] or 0) if int(error) == 0 else 0
torch = sys.modules.get("torch")
print(json.dumps({"seen": seen, "active": active, "current": current, "error": int(error),
                  "torch": bool(torch and torch.cuda.is_initialized())}))
app.close()
"""
"""Arguments: streams to look at, one after the other. Prints what it saw, and whether CUDA has a context."""
