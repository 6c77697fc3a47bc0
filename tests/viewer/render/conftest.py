"""Provide each renderer to the conformance suites."""

from __future__ import annotations

from collections.abc import Iterator

import moderngl
import pytest
from support.renderer_cases import MAKERS, MARKED

from splatview_viewer.render.base import Renderer


@pytest.fixture(params=MARKED)
def renderer(
    request: pytest.FixtureRequest, ctx: moderngl.Context
) -> Iterator[Renderer]:
    """Make each renderer in turn."""
    created = MAKERS[request.param](ctx)
    yield created
    created.close()
