"""CUDA's renderer on more work than a picture may be, and with too little memory, with its kernels run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, random_scene
from test_gsplat_cpu import (  # noqa: F401  (fixtures)
    VIEW,
    compiled,
    no_gpu,
    renderer_fixture,
    shown,
)

from splatview.viewer_app.errors import RendererError
from splatview.viewer_app.renderers.kernels.capacity import Capacity
from splatview.viewer_app.scene import FIELDS

if TYPE_CHECKING:
    from splatview.viewer_app.renderers import frame_graph
    from splatview.viewer_app.renderers.gsplat import GsplatRenderer


def test_more_work_than_a_picture_may_be_is_left_out_from_behind(renderer: GsplatRenderer,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    s = random_scene(1, Chance(n=200))
    renderer.load(s)
    whole, most = shown(renderer), 150
    assert renderer.thinned == ""
    monkeypatch.setattr(Capacity, "FIRST", 64)
    frame = cast("frame_graph.FrameGraph", renderer._frame)
    frame._capacity = Capacity(most)
    renderer.load(s)
    part = shown(renderer)
    assert frame.slots == most and renderer.thinned.startswith("only the nearest are shown: all would take ")
    assert part[..., 3].any() and (part[..., 3] <= whole[..., 3] + 2e-3).all()
    near = np.argsort(VIEW.viewmat[2, :3] @ s.means.T + VIEW.viewmat[2, 3], kind="stable")[:10]
    renderer.load(replace(s, **{name: getattr(s, name)[near] for name in FIELDS}))
    shown(renderer)
    assert renderer.thinned == ""


def test_too_little_memory_leaves_out_what_is_behind(renderer: GsplatRenderer,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for 256 pairs and no more."""
    s, tried = random_scene(1, Chance(n=400)), []
    monkeypatch.setattr(Capacity, "FIRST", 64)
    renderer.load(s)
    frame = cast("frame_graph.FrameGraph", renderer._frame)
    draw = frame._launch

    def full(kind: Any) -> None:
        tried.append(kind.slots)
        if kind.slots > 256:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        draw(kind)

    monkeypatch.setattr(frame, "_launch", full)
    assert shown(renderer)[..., 3].any()
    assert tried[0] > 256 >= tried[-1] and renderer.thinned and renderer._plainly == ""
    monkeypatch.setattr(frame, "_launch", lambda kind: full(replace(kind, slots=10**9)))
    renderer.load(s)
    with pytest.raises(RendererError, match=r"memory of .* is full"):
        shown(renderer)
