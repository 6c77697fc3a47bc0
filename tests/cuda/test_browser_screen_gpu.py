"""The browser screen on a GPU, and nvJPEG itself.

Pictures go through nvJPEG without leaving the GPU, without it through a pixel buffer.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import moderngl
import numpy as np
import PIL.Image
import pytest
import torch
from support.browser_rig import (
    BLUE,
    CAPTION,
    GREEN,
    RED,
    Rig,
    decoded,
    draw,
    poll,
    restful,
    settle,
    spend,
    until_ready,
)

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.screens import draw_target as targets
from splatview_viewer.web import encoders, pacing
from splatview_viewer.web.encoders import NvJpegEncoder

pytestmark = pytest.mark.cuda


@pytest.fixture(params=["nvjpeg", "turbo"])
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    def missing(device: int) -> None:
        raise ViewerError("there is no nvJPEG")

    if request.param == "turbo":
        monkeypatch.setattr(encoders, "NvJpegEncoder", missing)
    monkeypatch.setattr(pacing.Pacer, "level", pacing.LEVELS[0])
    return request.param


def test_the_page_sees_what_was_drawn(rig: Rig, encoder: str) -> None:
    screen = rig.open(640, 360)
    page = rig.pages[screen]
    assert screen.targets.pictures.shared is not None
    settle(screen, page)
    for k, color in enumerate((RED, GREEN, BLUE, RED)):
        drawn = draw(screen, color, k)
        poll(screen, lambda: not page._pictures.empty())
        picture = page.picture()
        assert (picture.format, picture.size) == ("jpeg", (640, 360))
        pixels = decoded(picture).astype(int)
        assert np.abs(pixels - drawn).mean() < 3
        # The white corner is at the top left.
        assert np.abs(pixels[:80, :200] - 255).max() < 40
        np.testing.assert_array_equal(decoded(restful(screen, page)), drawn)


def test_nobody_waits_for_a_gpu_that_is_behind(rig: Rig) -> None:
    screen = rig.open(640, 360)
    page = rig.pages[screen]
    settle(screen, page)
    until_ready(screen)
    screen.framebuffer.clear(*RED, 1.0)
    torch.cuda._sleep(2_000_000_000)  # about a second
    screen.present(CAPTION)
    gpu_finished = torch.cuda.Event()
    gpu_finished.record()
    # `present` came back while the GPU is still at it.
    assert not gpu_finished.query()
    # One may be drawn while another is being encoded, no more.
    if screen.takes_pictures:
        screen.framebuffer.clear(*RED, 1.0)
        screen.present(CAPTION)
    assert not screen.takes_pictures
    spend(screen, 0.05)
    poll(screen, lambda: not page._pictures.empty())
    assert gpu_finished.query()
    pixels = decoded(page.picture()).astype(int)
    assert np.abs(pixels - np.rint(np.array(RED) * 255)).mean() < 4


def test_a_registered_texture_is_read_where_none_can_be_shared(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise SharingError("no Vulkan")

    monkeypatch.setattr(
        targets, "SharedTexture", type("NoVulkan", (), {"__init__": fail})
    )
    target = targets.DrawTarget(rig.ctx, (61, 33), shared=True)
    for level in range(0, 256, 15):
        target.framebuffer.clear(level / 255, 1.0, 0.0, 1.0)
        color = torch.tensor([level, 255, 0, 255], dtype=torch.uint8, device="cuda")
        assert (target.tensor() == color).all(), level
    target.release()
    assert rig.ctx.error == "GL_NO_ERROR"


@pytest.fixture
def nvjpeg() -> Iterator[NvJpegEncoder]:
    encoder = NvJpegEncoder(0)
    yield encoder
    encoder.close()


def test_it_is_chosen_where_opengl_and_cuda_share_a_gpu(ctx: moderngl.Context) -> None:
    with ctx:  # makes it current
        encoder = encoders.choose_encoder(ctx)
    assert isinstance(encoder, NvJpegEncoder), encoder.reason
    encoder.close()


def test_it_reads_what_the_stream_wrote_before(nvjpeg: NvJpegEncoder) -> None:
    """On the caller's stream, however late that is done.

    The pixels may be written again at once.
    """
    pixels = torch.zeros((256, 256, 4), dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    for shade in (200, 30, 120):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            pixels.fill_(shade)
            data = nvjpeg.encode(pixels, 90)
            pixels.fill_(255)
        encoded = np.asarray(PIL.Image.open(io.BytesIO(data))).astype(int)
        assert np.abs(encoded - shade).max() <= 2
