"""On a GPU: what the renderer keeps from one version of a scene to the next shows in no picture, and saves time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, looking_at_origin, random_scene
from test_gsplat_renderer import VIEW, on_gpu

from splatview.viewer_app.errors import RendererError
from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.gsplat import GsplatRenderer
from splatview.viewer_app.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    import moderngl

    from splatview.viewer_app.cameras import Camera

pytestmark = pytest.mark.cuda
SHOWN = RenderOptions(depth=False)


def fresh(s: GaussianScene, view: Camera = VIEW, options: RenderOptions = SHOWN) -> np.ndarray:
    """By a renderer that knows nothing, without graphs as yet."""
    made = GsplatRenderer()
    made.load(replace(s, **{name: getattr(s, name).clone() for name in FIELDS}))
    values = made.render(view, options).pixels()
    made.close()
    return np.dstack([values.color, values.alpha])


def assert_fresh(kept: GsplatRenderer, s: GaussianScene, view: Camera = VIEW,
                 options: RenderOptions = SHOWN) -> np.ndarray:
    kept.load(s)
    p = kept.render(view, options).pixels()
    values = np.dstack([p.color, p.alpha])
    wrong = int((values != fresh(s, view, options)).sum())
    assert not wrong and values.any(), f"{wrong} of {values.size} numbers differ, {values.max()} is the greatest"
    return values


@pytest.fixture
def kept(ctx: moderngl.Context) -> GsplatRenderer:
    return GsplatRenderer(ctx)


def test_versions_generations_sizes_and_degrees(kept: GsplatRenderer) -> None:
    small, large = (on_gpu(random_scene(n, Chance(n=n))) for n in (700, 3000))
    pictures = []
    for _ in range(6):  # from the third on by a graph
        small.means.add_(0.03)  # type: ignore[union-attr]
        small.shN.mul_(-0.8)  # type: ignore[union-attr]
        pictures.append(assert_fresh(kept, small))
    assert len({p.tobytes() for p in pictures}) == 6
    for s in (large, small, large, small):
        assert_fresh(kept, s)
    for degree in (0, 1, 2, 3, 1):
        assert_fresh(kept, replace(small, sh_degree=degree))
    other = replace(small, **{name: getattr(large, name)[:700] for name in FIELDS})  # of one size, elsewhere
    for s in (other, small, other):
        assert_fresh(kept, s)
    assert_fresh(kept, replace(small, means=small.means.half()))  # type: ignore[union-attr]
    view = replace(VIEW, viewmat=VIEW.viewmat.copy(), K=VIEW.K.copy())
    for _ in range(3):
        view.viewmat[2, 3] += 0.5
        assert_fresh(kept, small, view)
        assert_fresh(kept, small, view, RenderOptions("antialiased"))
    assert kept.note == ""
    kept.close()


def state() -> tuple[int, int, bool]:
    return torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream, torch.is_grad_enabled()


def test_streams_are_left_as_they_were(kept: GsplatRenderer) -> None:
    kept.load(on_gpu(random_scene(1, Chance(n=500))))
    for outer in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.default_stream()):
        with torch.cuda.stream(outer):
            before = state()
            picture = kept.render(looking_at_origin(distance=3.5), SHOWN)
            assert state() == before and before[2]
            with picture.on_gpu():
                assert state() == (before[0], kept._stream.cuda_stream, False)
                with torch.cuda.stream(outer):
                    picture.pixels()
                    assert state()[1] == before[1]
            assert state() == before
            picture.source()
            with pytest.raises(RendererError, match="on purpose"), kept._working(), kept._working():
                raise RuntimeError("on purpose")
            assert state() == before
    kept.close()
