"""Examples run to their end in this process, and all that they publish is drawn;
tests/soak has the others.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image
from support.programs import ROOT

from splatview_viewer.__main__ import main


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        ("image", ["image"]),
        ("scalars", ["learned", "scalars"]),
        ("memory", ["learned", "memory"]),
        ("gaussian_training", ["gaussians", "render"]),
    ],
)
def test_example_runs_and_its_streams_are_drawn(
    name: str, streams: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLATVIEW_STRICT", "1")
    monkeypatch.setattr(sys, "argv", [name, "--steps", "3"])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    for stream in streams:
        assert (
            main(
                [
                    "shot",
                    str(tmp_path / "out.png"),
                    "--stream",
                    stream,
                    "--size",
                    "320x240",
                ]
            )
            == 0
        )
        colors = Image.open(tmp_path / "out.png").convert("RGB").getcolors(1 << 24)
        assert colors is not None
        assert len(colors) > 50, "a picture; one of NaN has a single colour"
