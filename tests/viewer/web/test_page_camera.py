"""The page's camera and the viewer's go the same way by the same events."""

from __future__ import annotations

import random
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import project
from splatview_viewer.geometry.flying import Flying
from splatview_viewer.geometry.orbit import Orbit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from splatview_viewer.geometry.cameras import Camera, CameraModel

RECT = Rect(40, 10, 640, 480)
MODS = ("shift", "ctrl", "alt", "super")
SCRIPT = """
async ([module, steps, place, rect]) => {
  const file = new Blob([module], {type: "text/javascript"});
  const {fitted, makeOrbit, makeFlying} = await import(URL.createObjectURL(file));
  const orbit = makeOrbit(place), flying = makeFlying();
  return steps.map((step) => {
    if (step.t === "key") flying.key(step.name, step.pressed, step.mods);
    else if (step.t === "time") {
      const motion = flying.step(step.now, step.speed);
      if (motion) orbit.fly(motion);
    } else orbit.handle(step, rect, step.looks);
    const camera = orbit.cameraFor(rect.width, rect.height);
    return [camera, fitted(camera, 300, 500)];
  });
}
"""


def make_steps(seed: int) -> list[dict[str, Any]]:
    """Return drags of all kinds, turns of the wheel, pinches and flights."""
    dice = random.Random(seed)
    steps: list[dict[str, Any]] = []

    def pointer() -> dict[str, float]:
        return {"x": dice.uniform(0, 700), "y": dice.uniform(0, 500)}

    for _ in range(25):
        is_first_person = dice.random() < 0.3
        press = {
            "t": "press",
            "button": dice.choice(["left", "left", "right", "middle"]),
            "mods": dice.choice([0, 0, 1, 2]),
            "looks": is_first_person,
        }
        steps.append(press | pointer())
        for _ in range(4):
            steps.append({"t": "move", "mods": 0, "looks": is_first_person} | pointer())
        steps.append({"t": "release", "button": "left", "mods": 0} | pointer())
        wheel_turn = {"dx": dice.uniform(-9, 9), "dy": dice.uniform(-9, 9)}
        steps.append(
            {"t": "wheel", "mods": dice.choice([0, 0, 1])} | wheel_turn | pointer()
        )
        fingers = {
            "dx": dice.uniform(-30, 30),
            "dy": dice.uniform(-30, 30),
            "factor": dice.uniform(0.7, 1.4),
            "turn": dice.choice([0.0, dice.uniform(-0.5, 0.5)]),
        }
        steps.append({"t": "pinch"} | fingers | pointer())
    now = 0.0
    for name in ("w", "d", "e", "c", "up", "q"):
        mods = dice.choice([0, 1, 4])
        steps.append({"t": "key", "name": name, "pressed": True, "mods": mods})
        for _ in range(4):
            now += dice.uniform(0.01, 0.1)
            speed = dice.choice([0.05, 1.0, 7.0])
            steps.append({"t": "time", "now": now, "speed": speed})
        if dice.random() < 0.7:
            steps.append({"t": "key", "name": name, "pressed": False, "mods": mods})
    return steps


def viewer_cameras(orbit: Orbit, steps: list[dict[str, Any]]) -> list[Camera]:
    """Return the viewer's camera after each step."""
    flying = Flying()
    cameras = []
    for step in steps:
        if step["t"] == "time":
            flying.speed = step["speed"]
            follow_keys(orbit, flying.step(step["now"]))
        elif step["t"] == "key":
            flying.key(event_of(step))
        else:
            orbit.looks_around = step.get("looks", False)
            orbit.handle(event_of(step), RECT)
        cameras.append(orbit.camera(RECT.width, RECT.height))
    return cameras


def event_of(step: dict[str, Any]) -> Any:
    """Return the event that a page's message makes."""
    fields = {key: value for key, value in step.items() if key != "looks"}
    if "mods" in fields:
        bits = fields["mods"]
        fields["mods"] = [name for bit, name in enumerate(MODS) if bits >> bit & 1]
    return msgspec.convert(fields, ev.PageEvent)


def follow_keys(orbit: Orbit, motion: np.ndarray | None) -> None:
    """Move as `CameraMotion` does while keys are held."""
    if motion is None:
        return
    up = orbit.rotation @ (orbit.up / np.linalg.norm(orbit.up))
    orbit.move((motion[:3] + up * motion[3]) * orbit.distance)
    if motion[4]:
        orbit.roll(float(motion[4]))


@pytest.mark.parametrize("model", ["pinhole", "ortho", "fisheye"])
def test_page_and_viewer_see_the_same(chromium: Browser, model: CameraModel) -> None:
    orbit = Orbit(
        target=np.array([1.0, -2.0, 3.0]),
        distance=4.0,
        up=np.array([0.1, -1.0, 0.2]),
        fov=60.0,
        model=model,
    )
    orbit.look_along(np.array([0.3, 0.2, 1.0]))
    steps = make_steps(len(model))
    orbit_place = msgspec.to_builtins(orbit.place)
    module = resources.files("splatview_viewer.splat_page") / "splats/orbit.js"
    rect = {"x": RECT.x, "y": RECT.y, "width": RECT.width, "height": RECT.height}
    page = chromium.new_page()
    arguments = [module.read_text("utf-8"), steps, orbit_place, rect]
    page_cameras = page.evaluate(SCRIPT, arguments)
    page.close()
    for step, camera, (page_camera, page_fitted) in zip(
        steps, viewer_cameras(orbit, steps), page_cameras, strict=True
    ):
        # Points before the camera, up to the edges of its picture.
        local = np.array([[-0.5, 0.4, 1], [0.5, -0.3, 2], [0, 0, 0.5]])
        points = (local - camera.viewmat[:3, 3]) @ camera.viewmat[:3, :3]
        viewmat = np.array(page_camera["viewmat"]).reshape(4, 4)
        moved = points @ viewmat[:3, :3].T + viewmat[:3, 3]
        np.testing.assert_allclose(moved, local, atol=1e-6, err_msg=str(step))
        np.testing.assert_allclose(
            np.array(page_camera["K"]).reshape(3, 3), camera.K, rtol=1e-9
        )
        # Another pane that shows the same.
        np.testing.assert_allclose(
            np.array(page_fitted["K"]).reshape(3, 3), camera.fitted(300, 500).K
        )
        assert np.isfinite(project(camera, points)).all()
