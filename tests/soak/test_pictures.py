"""Each way to see a scene, held to a reference picture. `picture_cases` says how to make those anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from support.picture_cases import Cases, Stage, play, stage_fixture, stages  # noqa: F401

from splatview.viewer_app import color_maps
from splatview.viewer_app.cameras import MODELS
from splatview.viewer_app.selecting import Selection
from splatview.viewer_app.state import Show

CASES = Cases()


def way(name: str, *shows: str, model: str = "pinhole", **settings: Any) -> None:
    """A scene, with these of `GaussianSettings`."""
    def draw(stage: Stage) -> None:
        stage.scene()
        stage.view.orbit.model = model
        for key, value in settings.items():
            setattr(stage.settings, key, value)

    CASES(name, "view gaussians", f"projection {model}", *shows)(draw)


for show in get_args(Show):
    way(f"show-{show}", f"show {show}", *(["colours turbo"] if show == "depth" else []), show=show)
for colors in color_maps.NAMES:
    if colors != "turbo":  # which is the one above
        way(f"depth-{colors}", "show depth", f"colours {colors}", show="depth", color_map=colors)
for model in MODELS[1:]:
    way(f"projection-{model}", "show color", model=model)
way("depth-range", "show depth", show="depth", depth_range=(5.0, 9.0))
way("overdraw-magma", "colours magma", show="overdraw", color_map="magma")
way("sh-degree-0", sh_degree=0)
way("size-half", scale=0.5)
way("ellipsoids-half", "show ellipsoids", show="ellipsoids", scale=0.5)
way("points-large", "show points", show="points", point_px=8.0)
way("antialiased", mode="antialiased", scale=0.2)
way("background", background=(0.8, 0.85, 0.9))
way("opacity", selection=Selection(opacity=(0.7, 1.0)))
way("scale-limit", selection=Selection(scale=(0.0, 0.14)))
way("marked", selection=replace(Selection(), marked=(3, 5, 8, 13, 21, 34, 55, 89, 144)))


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=list(CASES))
def test_it_looks_as_it_did(stage: Stage, name: str, case: object) -> None:
    play(stage, name)
