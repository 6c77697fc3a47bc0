"""Boxes, points, lines, masks and words over an image that belong to one of its versions."""

from __future__ import annotations

from splatview_viewer.core.kind import Kind

KIND = Kind("overlay")
