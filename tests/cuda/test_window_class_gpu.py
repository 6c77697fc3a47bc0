"""`splatview.Window` with tensors on a GPU: followed where they lie, shown by their addresses, copied where they are
new at every call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.desktop import Desktop
from support.trainers import Trainer
from support.window_cases import Seen, red_ball

from splatview.adapters.images import picture_at
from splatview_ipc.cuda import driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

pytestmark = pytest.mark.cuda

WINDOW = """
from support.window_cases import SIZE, scene
W, H = SIZE
window = splatview.Window(W, H)
image = torch.full((H, W, 3), 0.25, device="cuda")
background, means, colors, *others = scene()
colors = colors.cuda()
parts = background, means.cuda(), colors, *(t.cuda() for t in others)  # the background lies on the CPU
window.start()
window.set_image(image)
"""
ANEW = """
for i in range(300):  # as fast as it goes, each in memory of its own
    image = torch.full((H, W, 4), i / 400, device="cuda")
    image[:, :, 3] = 1.0
    window.set_image(image)
"""


@pytest.mark.display
def test_a_window_follows_images_addresses_and_scenes(programs: Programs, display: str,
                                                      wait_until: Callable[..., Any]) -> None:
    desktop = Desktop(display)
    seen, caller = Seen(desktop, wait_until), Trainer(programs, SPLATVIEW_STRICT="1")

    def do(code: str) -> None:
        caller.do(code + "\ntorch.cuda.synchronize()")

    do(WINDOW)
    seen.grey("splatview", 0.25)
    for value in (0.5, 1.0, 0.0):
        do(f"image.fill_({value})")  # and no call
        seen.grey("splatview", value)
    do("window.set_gaussian_splatting_scene(*parts)")
    seen("splatview", red_ball)
    do("colors[:, 0] *= -1")
    seen("splatview", lambda p: p[p.shape[0] // 2, p.shape[1] // 2, 1] > 150)
    do(ANEW)
    seen.grey("splatview", 299 / 400)
    do("image.fill_(0.375); image[..., 3] = 1; window.set_image(W, H, image.data_ptr())")
    seen.grey("splatview", 0.375)
    do("window.destroy()")
    wait_until(lambda: not desktop.shows("splatview"))


def test_gpu_memory_that_is_not_torchs() -> None:
    values = torch.rand(20, 30, 3, device="cuda")
    size = values.numel() * 4
    with driver.context(0):
        address = int(driver.handle("cuMemAlloc", size))
        try:
            driver.call("cuMemcpyDtoD", address, values.data_ptr(), size)
            picture = picture_at(address, 30, 20, 3)
            assert torch.equal(picture, values)
            with pytest.raises(ValueError, match="allocation"):
                picture_at(address, 3000, 2000, 3)
        finally:
            driver.call("cuMemFree", address)
    assert torch.equal(picture, values), "a copy"
    torch.cuda.synchronize()
