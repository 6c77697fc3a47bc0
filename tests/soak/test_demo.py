"""`splatview demo` with its real programs: the picture, and nothing left running."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from support.programs import children

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs


def test_the_demo_writes_what_the_viewer_shows(programs: Programs, tmp_path: Path) -> None:
    process = programs.splatview("demo", "--steps", "100", "--out", "a.png", "--offscreen", "--device", "cpu", "--size",
                                 "320x240")
    said, err = process.communicate()
    assert process.returncode == 0, said + err
    assert "a.png" in said and "after 100 of 100 steps" in said
    pixels = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    assert pixels.shape == (240, 320, 3) and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000


def test_a_demo_that_is_killed_takes_its_processes_along(programs: Programs, wait_until: Callable[..., Any]) -> None:
    process = programs.splatview("demo", "--steps", "1000000", "--offscreen", "--device", "cpu", "--out", "a.png")
    started = wait_until(lambda: len(found := children(process.pid)) >= 2 and found)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started))
