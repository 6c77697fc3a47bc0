"""Gaussians that a page draws in a browser, for tests."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from splatview_viewer.blocks.layout import BlockPart
from splatview_viewer.blocks.packing import BlockedScene
from support.unpacked_blocks import unpacked

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

_START = """async () => {
  const {makeSplats} = await import("/splats/draw.js");
  const canvas = document.createElement("canvas");
  canvas.id = "splats";
  document.body.append(canvas);
  window.splats = makeSplats(canvas);
  window.putAll = async () => {
    const answer = await fetch("/blocks");
    const sizes = JSON.parse(answer.headers.get("sizes")), bytes = await answer.arrayBuffer();
    let offset = 0;
    for (const [part, blocks, size] of sizes) {
      for (let block = 0; block < blocks; ++block, offset += size) {
        splats.put(block, part, bytes.slice(offset, offset + size));
      }
    }
  };
}"""
_CANVAS = "document.getElementById('splats').toDataURL()"
_PIXELS = "new Uint8Array(splats.pixels().buffer).toBase64()"


@dataclass(frozen=True)
class PackedScene:
    """A scene in blocks, with all that a page needs."""

    version: dict[str, Any]
    packed_parts: list[tuple[BlockPart, np.ndarray]]
    unpacked: GaussianScene
    """What the blocks say."""


def packed(scene: GaussianScene, form: BlockPart = "exact") -> PackedScene:
    """Pack a scene; `form` is that of its Gaussians."""
    blocked = BlockedScene.of(scene)
    blocks = blocked.pack(form).numpy()
    packed_parts: list[tuple[BlockPart, np.ndarray]] = [(form, blocks)]
    harmonics = None
    if blocked.coefficients:
        harmonics = blocked.pack("harmonics").numpy()
        packed_parts.append(("harmonics", harmonics))
    version = {
        "number": 1,
        "pass": 1,
        "count": len(scene),
        "sh_degree": scene.sh_degree,
        "sh_stored": blocked.coefficients,
        "origin": blocked.origin,
        "antialiased": scene.antialiased,
    }
    back = unpacked(blocks, harmonics, len(scene), blocked.origin, blocked.coefficients)
    return PackedScene(version, packed_parts, back)


class PageSplats:
    """Draws Gaussians in a page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._body = b""
        self._sizes: list[tuple[BlockPart, int, int]] = []
        page.route("**/blocks", self._answer)
        page.evaluate(_START)

    def _answer(self, route: Route) -> None:
        route.fulfill(body=self._body, headers={"sizes": json.dumps(self._sizes)})

    def run(self, script: str, *arguments: Any) -> Any:
        """Evaluate a function of JavaScript; `splats` is what draws."""
        return self._page.evaluate(script, *arguments)

    def put(self, scene: PackedScene) -> None:
        """Put all parts of a scene."""
        self._body = b"".join(
            block_bytes.tobytes() for _, block_bytes in scene.packed_parts
        )
        self._sizes = [
            (name, *block_bytes.shape) for name, block_bytes in scene.packed_parts
        ]
        self.run("putAll()")

    def load(self, scene: PackedScene) -> None:
        """Have a page draw a scene from now on."""
        assert self.run("version => splats.begin(version)", scene.version)
        self.put(scene)
        assert self.run("splats.commit()")

    def draw(self, camera: Camera, **options: Any) -> np.ndarray:
        """Draw a picture; return (H, W, 4) float32, premultiplied, over nothing.

        Args:
            camera: the camera.
            options: those of the page.
        """
        script = f"([c, o]) => splats.draw(c, o).then(() => {_PIXELS})"
        text = self.run(script, [camera_of(camera), options])
        values = np.frombuffer(base64.b64decode(text), np.float32)
        return values.reshape(camera.height, camera.width, 4)

    def draw_canvas(self, camera: Camera, **options: Any) -> np.ndarray:
        """Draw a picture; return what is on the canvas, (H, W, 3) uint8."""
        script = f"([c, o]) => splats.draw(c, o).then(() => {_CANVAS})"
        text = self.run(script, [camera_of(camera), options])
        file = io.BytesIO(base64.b64decode(text.partition(",")[2]))
        return np.asarray(Image.open(file).convert("RGB"))


def camera_of(camera: Camera) -> dict[str, Any]:
    """Return a camera as the page takes it."""
    return {
        "viewmat": camera.viewmat.ravel().tolist(),
        "K": camera.K.ravel().tolist(),
        "width": camera.width,
        "height": camera.height,
        "model": camera.model,
        "near": camera.near,
        "far": camera.far,
    }
