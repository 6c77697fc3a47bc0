"""Fixtures of the tests of renderers."""

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
    """Each renderer, for conformance suites."""
    made = MAKERS[request.param](ctx)
    yield made
    made.close()
