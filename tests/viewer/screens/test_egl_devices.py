"""Which GPU the offscreen screen draws on."""

from __future__ import annotations

import pytest

from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.screens.offscreen import OffscreenScreen, create_context, current_context, devices, let_go

A, B = "a" * 32, "b" * 32


def test_a_gpu_that_is_not_there_is_no_fault() -> None:
    ctx = create_context(A)
    held = current_context()
    assert ctx.error == "GL_NO_ERROR"
    ctx.release()
    let_go(held)


@pytest.mark.cuda
def test_every_gpu_of_cuda_can_be_drawn_on() -> None:
    import torch

    from splatview_ipc.cuda.driver import gpu_uuid

    assert any(device.nvidia for device in devices()), devices()
    for index in range(torch.cuda.device_count()):
        screen = OffscreenScreen(64, 48, gpu_uuid=gpu_uuid(index))
        assert gl_device_uuid(screen.ctx) == gpu_uuid(index), devices()
        screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
        assert (screen.pixels() == (0, 255, 0, 255)).all()
        screen.close()
