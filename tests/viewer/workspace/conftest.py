"""Fixtures of the tests of the workspace."""

from support.viewer import viewer_fixture  # noqa: F401
