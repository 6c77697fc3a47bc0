"""Arrays of JAX: they arrive as they are, and the program can donate them to its next step."""

from __future__ import annotations

import importlib.util
import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interop_frames import frames_of
from patience import PATIENCE

from splatview.ipc import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Processes

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")

JAX = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import splatview
from splatview.adapt.arrays import as_tensor

picture = (jnp.arange(60, dtype=jnp.float32).reshape(4, 5, 3) / 60)
forms = {"f32": picture, "bf16": picture.astype(jnp.bfloat16), "f16": picture.astype(jnp.float16),
         "uint8": (picture * 255).astype(jnp.uint8), "sliced": picture[:, ::2], "chw": picture.transpose(2, 0, 1),
         "numpy": np.asarray(picture)}
for _ in range(3):
    for name, value in forms.items():
        splatview.publish(value, name, layout="CHW" if name == "chw" else "HWC")
assert as_tensor(picture, "x").data_ptr() != picture.unsafe_buffer_pointer(), "a copy, so that it can be donated"

step = jax.jit(lambda scene: jax.tree.map(lambda x: x + 1, scene), donate_argnums=0)
scene = {"means": jnp.zeros((6, 3)), "quats": jnp.zeros((6, 4)), "scales": jnp.zeros((6, 3)),
         "opacities": jnp.zeros(6), "sh0": jnp.zeros((6, 1, 3))}
for i in range(5):
    scene = step(scene)
    splatview.publish(scene, "scene", step=i)
said = {}
for name, what in {"deleted": lambda: (gone.delete(), splatview.publish(gone)),
                   "traced": lambda: jax.jit(lambda x: splatview.publish(x) or x)(picture)}.items():
    gone = picture + 1
    try:
        what()
    except TypeError as e:
        said[name] = str(e)
print(json.dumps({"said": said, "picture": np.asarray(picture).tolist()}), flush=True)
sys.stdin.readline()
"""


def test_arrays_of_jax(processes: Processes, wait_until: Callable[..., Any]) -> None:
    process = processes.code(JAX, JAX_PLATFORMS="cpu", SPLATVIEW_STRICT="1")
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    told = json.loads(line)
    picture = np.array(told["picture"], np.float32)
    with Subscriber() as subscriber:
        for name in ("f32", "numpy"):
            assert np.array_equal(frames_of(subscriber, name, 3, wait_until)["image"], picture)
        for name in ("bf16", "f16"):
            assert np.allclose(frames_of(subscriber, name, 3, wait_until)["image"], picture, rtol=0, atol=4e-3)
        assert np.array_equal(frames_of(subscriber, "sliced", 3, wait_until)["image"], picture[:, ::2])
        assert np.array_equal(frames_of(subscriber, "chw", 3, wait_until)["image"], picture.transpose(2, 0, 1))
        got = frames_of(subscriber, "uint8", 3, wait_until)["image"]
        assert np.array_equal(got, (picture * np.float32(255)).astype(np.uint8))
        scene = frames_of(subscriber, "scene", 5, wait_until)
        assert {float(v) for t in scene.values() for v in t.flat} == {5.0}
    assert "given away" in told["said"]["deleted"]
    assert "jit" in told["said"]["traced"]
    process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0


DONATING = """
import json, sys, threading
import jax, jax.numpy as jnp
import splatview
from splatview import publishing
from splatview.adapt import arrays

step = jax.jit(lambda scene: jax.tree.map(lambda x: x + 1, scene), donate_argnums=0)
scene = {"means": jnp.zeros((600, 3)), "quats": jnp.zeros((600, 4)), "scales": jnp.zeros((600, 3)),
         "opacities": jnp.zeros(600), "sh0": jnp.zeros((600, 1, 3))}
copies = 0
whole = arrays.from_dlpack
def counted(*args, **options):
    global copies
    copies += 1
    return whole(*args, **options)
arrays.from_dlpack = counted

def turn(publish=True):
    "Whether JAX could use the memory of every part again, and had to copy none."
    global scene
    given, places = scene, {part.unsafe_buffer_pointer() for part in scene.values()}
    scene = step(given)
    assert all(part.is_deleted() for part in given.values())
    kept = {part.unsafe_buffer_pointer() for part in scene.values()} == places
    if publish:
        splatview.publish(scene, "scene")
    return kept

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    kind = json.loads(line)
    before = copies
    kept = all([turn(kind != "donate") for _ in range(1 if kind == "donate" else 50)])
    print(json.dumps({"kept": kept, "copies": copies - before, "value": float(scene["means"][0, 0])}), flush=True)
"""


def test_jax_can_donate_what_was_published(processes: Processes, wait_until: Callable[..., Any]) -> None:
    """Its steps use the memory again, with a viewer and without; who comes when all is given away waits for the next
    version, and nothing is a fault."""
    process = processes.code(DONATING, JAX_PLATFORMS="cpu", SPLATVIEW_STRICT="1")
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None

    def do(what: str) -> dict[str, Any]:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, process.stderr.read()
        return json.loads(line)

    assert json.loads(process.stdout.readline()) == "ready"
    told = do("publish")
    assert told["kept"]
    assert told["copies"] == 0, "while nobody looks"
    do("donate")
    with Subscriber() as subscriber:
        stream = wait_until(lambda: (subscriber.poll(), next(iter(subscriber.streams), None))[1], what="the stream")
        stream.open()
        before = time.monotonic()
        while time.monotonic() < before + 0.5:  # the helper thread looks, and finds nothing yet
            subscriber.poll()
            assert stream.read(0) is None
            time.sleep(0.01)
        for _ in range(3):
            told = do("publish")
            assert told["kept"]
            scene = frames_of(subscriber, "scene", stream.version, wait_until)
            assert {float(v) for t in scene.values() for v in t.flat} <= {told["value"]}
        assert told["copies"] == 5 * 50
        assert stream.run.counters["faults"] == 0
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
