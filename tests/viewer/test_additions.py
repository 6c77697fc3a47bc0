"""Additions from outside the packages: one constant each, in the table that lists its like."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from support import stub_kind
from support.frames import frame_of
from support.programs import ROOT

from splatview_ipc.control.frame import Frame
from splatview_viewer import kinds
from splatview_viewer.__main__ import main
from splatview_viewer.formats import Format
from splatview_viewer.kinds import files

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from support.viewer import Viewer

KIND = replace(stub_kind.KIND, holds=lambda value: isinstance(value, Frame))
BARS = Format("bars", (".bars",), "bars as text", lambda start: start.head.startswith(b"bars "), lambda path, progress:
              frame_of("stub", {"levels": torch.tensor([float(word) for word in path.read_text().split()[1:]])}))


def test_a_kind_and_a_format(viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, KIND))
    assert kinds.shown()[-1] == "stub" and kinds.about("stub") is KIND
    monkeypatch.setattr(files, "FORMATS", (*files.FORMATS, BARS))
    (tmp_path / "two.bars").write_text("bars 1 0")
    assert files.recognise(tmp_path / "two.bars") == "bars"
    assert main(["shot", str(tmp_path / "out.png"), str(tmp_path / "two.bars"), "--size", "32x24"]) == 0
    drawn = np.asarray(Image.open(tmp_path / "out.png").convert("RGB"))
    assert (drawn[:, :16] == (102, 178, 255)).all() and (drawn[:, 16:] == 26).all()

    viewer.catalogue.open_file(tmp_path / "two.bars")
    viewer.until(viewer.loaded)
    assert [entry.kind for entry in viewer.state.entries] == ["stub"]
    assert viewer.user.layout.active.describe()[1].details == ["2 levels"]


def test_the_guide_names_these_tables_and_its_samples_parse() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    samples = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(samples) == 7 and all(ast.parse(sample).body for sample in samples)
    for table in ("KINDS", "FORMATS", "RENDERERS", "SCREENS", "TOOLS", "FEATURES", "TRANSPORTS"):
        assert f"`{table}`" in guide
