"""`splatview.grab` on a GPU: pictures come back as CUDA tensors.

They are in the order of the caller's work, and right.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from support.programs import Programs
from support.wait import PATIENCE_S

import splatview

pytestmark = pytest.mark.cuda

grab = partial(splatview.grab, timeout=PATIENCE_S)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    splatview.close()
    gc.collect()


def scene(count: int = 2000, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, device="cuda", generator=generator)

    return {
        "means": 0.8 * noise(3),
        "quats": noise(4),
        "scales": 0.3 * noise(3) - 2.5,
        "opacities": noise() + 2,
        "sh0": 0.5 * noise(1, 3),
        "shN": 0.05 * noise(15, 3),
    }


def picture(seed: int) -> torch.Tensor:
    return torch.randint(
        0,
        256,
        (70, 90, 3),
        generator=torch.Generator("cuda").manual_seed(seed),
        dtype=torch.uint8,
        device="cuda",
    )


@pytest.mark.parametrize("method", ["new", "same", "in place"])
def test_ones_own_images(method: str) -> None:
    image = picture(0)
    for k in range(8):
        torch.cuda._sleep(40_000_000)
        if method == "new":
            image = picture(k)
        else:
            image.copy_(picture(k))
        splatview.publish(image, "render", copy=False if method == "in place" else None)
        drawn = grab("render")
        assert drawn.is_cuda
        assert torch.equal(drawn, picture(k)), f"number {k}"
    if method == "in place":
        torch.cuda._sleep(40_000_000)
        image.copy_(picture(77))
        assert torch.equal(grab("render"), picture(77))


def test_scene_that_needs_more_room_is_drawn_again() -> None:
    """Each of these Gaussians covers most of the picture."""
    splatview.publish({**scene(), "scales": torch.full((2000, 3), 1.0, device="cuda")})
    near = {"position": [0, 0, -1.5], "look_at": [0, 0, 0]}
    first = grab(camera=near, size=(1920, 1080))
    assert torch.equal(first, grab(camera=near, size=(1920, 1080)))


def test_scenes_in_a_row_on_a_stream_of_the_callers() -> None:
    """Nothing is waited for between a grab and the next change of the scene."""
    raw = scene()
    camera = {"position": [0.4, -0.3, -4], "look_at": [0, 0, 0]}
    splatview.publish(raw)
    expected = []
    for shift in range(6):
        raw["sh0"].fill_(shift / 2 - 1)
        torch.cuda.synchronize()
        expected.append(grab(camera=camera, size=(320, 240)).cpu())
    pictures = []
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for shift in range(6):
            torch.cuda._sleep(4_000_000)
            raw["sh0"].fill_(shift / 2 - 1)
            pictures.append(grab(camera=camera, size=(320, 240)))
            # Memory that is free again must not be that of a picture.
            torch.full((240, 320, 3), 7, dtype=torch.uint8, device="cuda")
    stream.synchronize()
    assert not torch.equal(expected[0], expected[5])
    for drawn, wanted in zip(pictures, expected, strict=True):
        assert torch.equal(drawn.cpu(), wanted)


_ASKING = """
import torch, splatview
from support.renderer_cases import psnr
from support.wait import PATIENCE_S
def draw(name, **options):
    return splatview.grab(name, timeout=PATIENCE_S, **options)
image = torch.load("image.pt", weights_only=True)
on_cpu = draw("render"), draw("splats", size=(160, 120))
assert not torch.cuda.is_initialized()
assert torch.equal(on_cpu[0], image), "image"
torch.cuda.init()
on_gpu = draw("render"), draw("splats", size=(160, 120))
assert all(t.is_cuda for t in on_gpu)
assert torch.equal(on_gpu[0].cpu(), image), "image on the GPU"
assert (on_gpu[1].cpu().int() - on_cpu[1].int()).abs().max() <= 1, "scene"
assert on_cpu[1].max() > 60
print("right")
"""


def test_another_process_with_and_without_cuda(programs: Programs) -> None:
    image = picture(0)
    torch.save(image.cpu(), programs.folder / "image.pt")
    splatview.publish(image, "render")
    noise = scene()
    count = 2000
    splatview.publish(
        {
            **noise,
            "scales": torch.full((count, 3), -2.5, device="cuda"),
            "opacities": torch.full((count,), 3.0, device="cuda"),
            "shN": 0 * noise["shN"],
        },
        "splats",
    )
    output, errors = programs.code(_ASKING).communicate(timeout=2 * PATIENCE_S)
    assert output == "right\n", errors
