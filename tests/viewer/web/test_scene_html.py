"""A scene as one file: it opens from a disk, and shows what the viewer shows."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.pages import screenshot, wait_for_script
from support.renderer_cases import Chance, gl, psnr, random_scene

from splatview_viewer.core.events import PointerMove, PointerPress
from splatview_viewer.core.screen import Rect
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.geometry.orbit import Orbit
from splatview_viewer.geometry.path import CameraPath, Keyframe
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.splat_page.one_script import one_script
from splatview_viewer.splat_page.scene_html import scene_html

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl
    from playwright.sync_api import Page
    from support.pages import Open

    from splatview_viewer.geometry.cameras import Camera

RECT = Rect(0, 0, 240, 180)
BACKGROUND = (0.2, 0.4, 0.6)
TITLE = '<b>"A & B"</script>'


def first_orbit() -> Orbit:
    orbit = Orbit(target=np.array([0.1, 0.2, 0.3]), distance=5.0, fov=50.0)
    orbit.look_along(np.array([0.3, 0.2, 1.0]))
    return orbit


def short_film() -> Film:
    """Return a film that ends after a tenth of a second."""
    path = CameraPath()
    for distance in (4.0, 6.0):
        orbit = first_orbit()
        orbit.distance = distance
        orbit.fov = 10 * distance
        path.keys.append(Keyframe.of(orbit.camera(240, 180), seconds=0.1))
    return Film(path)


def poster() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((9, 16, 3), 200, np.uint8)).save(file, "WEBP")
    return file.getvalue()


def state(page: Page) -> dict[str, Any]:
    return page.evaluate("splatview.state()")


def picture_after(page: Page, drawn: int) -> np.ndarray:
    """Return what is shown once the page has drawn more than so many pictures."""
    wait_for_script(page, f"window.splatview?.state().drawn > {drawn}")
    page.evaluate("document.getElementById('foot').hidden = true")
    return screenshot(page)


def assert_same_camera(page: Page, camera: Camera) -> None:
    page_camera = state(page)["camera"]
    viewmat = np.array(page_camera["viewmat"]).reshape(4, 4)
    np.testing.assert_allclose(viewmat, camera.viewmat, atol=1e-5)
    K = np.array(page_camera["K"]).reshape(3, 3)
    np.testing.assert_allclose(K, camera.K, rtol=1e-5)


def test_file_shows_what_the_viewer_shows(
    open_page: Open, ctx: moderngl.Context, tmp_path: Path
) -> None:
    scene = replace(random_scene(1, Chance(n=1500, sh_degree=2)), antialiased=True)
    file = tmp_path / "scene.html"
    orbit = first_orbit()
    options: dict[str, Any] = {
        "camera": orbit.place,
        "path": short_film(),
        "background": BACKGROUND,
        "title": TITLE,
        "poster": poster(),
    }
    file.write_bytes(scene_html(scene, **options))
    page = open_page(file.as_uri(), (RECT.width, RECT.height))
    renderer = gl("quads", ctx)
    renderer.load(scene)

    def viewer_picture() -> np.ndarray:
        camera = orbit.camera(RECT.width, RECT.height)
        drawn = renderer.render(camera, RenderOptions("antialiased")).pixels()
        background = (1 - drawn.alpha[..., None]) * np.array(BACKGROUND)
        return (drawn.color + background).clip(0, 1) * 255

    # The second picture has the harmonics.
    assert psnr(picture_after(page, 1), viewer_picture(), 255) >= 40
    assert page.title() == TITLE
    assert page.evaluate("document.images.length") == 0, "the poster has gone"
    assert "1,500 Gaussians" in str(page.text_content("#about"))
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0

    page.mouse.move(100, 80)
    page.mouse.down()
    page.mouse.move(150, 60)
    page.mouse.up()
    orbit.handle(PointerPress(100, 80, "left"), RECT)
    orbit.handle(PointerMove(150, 60), RECT)
    assert psnr(picture_after(page, 2), viewer_picture(), 255) >= 40
    assert_same_camera(page, orbit.camera(RECT.width, RECT.height))

    page.evaluate("document.getElementById('foot').hidden = false")
    page.keyboard.press("p")
    wait_for_script(page, "splatview.state().touring < 0")
    path = short_film().path
    assert_same_camera(page, path.camera_at(1.0, RECT.width, RECT.height))
    assert float(page.input_value("#time")) == pytest.approx(path.duration)
    late = path.duration * 2 / 3
    page.fill("#time", str(late))
    assert_same_camera(page, path.camera_at(late, RECT.width, RECT.height))
    page.press("#time", "l")
    page.press("#time", "p")
    wait_for_script(page, f"Number(time.value) < {late / 2}")
    assert state(page)["touring"] >= 0, "it goes on from the beginning"
    page.keyboard.press("r")
    assert state(page)["touring"] < 0
    assert_same_camera(page, first_orbit().camera(RECT.width, RECT.height))
    page.keyboard.press("?")
    assert "Fly" in page.inner_text("#help")
    page.keyboard.press("w")
    page.keyboard.press("Escape")
    assert page.is_hidden("#help")
    assert_same_camera(page, first_orbit().camera(RECT.width, RECT.height))

    page.add_init_script(
        "WebGL2RenderingContext.prototype.getShaderParameter = () => 0"
    )
    page.reload()
    wait_for_script(page, "!trouble.hidden")
    assert "This scene cannot be drawn here" in page.inner_text("#trouble")
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.reload()
    assert "this browser has no WebGL2" in page.inner_text("#trouble")
    assert page.evaluate("document.images[0].naturalWidth") == 16
    renderer.close()


def test_modules_are_joined_or_refused() -> None:
    modules = {
        "page.js": 'import {a as b} from "./part.js";\nexport const c = b();',
        "part.js": "const c = 1;\nexport function a() { return c; }",
    }
    joined = one_script(modules, "page.js")
    assert joined.index("function a") < joined.index('{a: b} = modules["part.js"]')
    for text in ("export default 1;", 'import x from "./part.js";', "// </script>"):
        with pytest.raises(ValueError, match="page"):
            one_script({"page.js": text}, "page.js")
