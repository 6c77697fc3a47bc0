"""When a viewport's picture may be a draft, and when one that stays takes its place.

A renderer that `has_drafts` draws those quicker. They are drawn while the camera moves
and while versions of the scene follow each other, for another picture replaces each of
them soon.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.kinds.gaussians.picture import ViewportPicture
    from splatview_viewer.render.base import RenderOptions

_TO_STAY = "to stay"
"""Option of a scene's work that is no draft, where the renderer has those."""
_QUIET_S = 0.5
"""Seconds without a movement of the camera, and without another version, after which a
picture is drawn to stay."""


class Drafts:
    """Decides which pictures of a scene are drafts."""

    def __init__(self, cache: SceneCache) -> None:
        self._cache = cache
        self._version_taken_at = -math.inf
        """Time of the loop."""
        self._is_flowing = False
        """The last version came soon after the one before it."""
        self._last_was_draft = False

    def may_draw(self, picture: ViewportPicture) -> bool:
        """Return True if a viewport's next picture may be a draft: others follow it."""
        if not self._cache.renderer.has_drafts:
            return False
        moved_at = picture.motion.moved_at
        if moved_at is None or self._is_recent(moved_at):
            return True
        return self._is_flowing and self._is_recent(self._version_taken_at)

    def must_replace(self, picture: ViewportPicture) -> bool:
        """Return True if a viewport shows a draft although nothing changes any more."""
        return is_draft(picture) and not self.may_draw(picture)

    def needs_scene(self, picture: ViewportPicture, options: RenderOptions) -> bool:
        """Return True if a picture to stay needs the scene once more, with all detail.

        The renderer took only as much of its last version as drafts need.
        """
        cache = self._cache
        if cache.stale or options.is_draft or not is_draft(picture):
            return False
        return cache.on_gpu and cache.renderer.is_coarse

    def expect_version(self) -> None:
        """Tell the renderer whether drafts alone will be drawn of the next version."""
        now = self._cache.now
        self._is_flowing = self._is_recent(self._version_taken_at)
        self._version_taken_at = now
        renderer = self._cache.renderer
        renderer.expects_drafts = self._is_flowing and self._last_was_draft

    def begin_picture(self, options: RenderOptions) -> tuple[str, ...]:
        """Take note of the next picture; return its words for the governor."""
        self._last_was_draft = options.is_draft
        if self._cache.renderer.has_drafts and not options.is_draft:
            return (_TO_STAY,)
        return ()

    def _is_recent(self, time: float) -> bool:
        return self._cache.now - time < _QUIET_S


def is_draft(picture: ViewportPicture) -> bool:
    """Return True if a viewport shows a draft."""
    return picture.key is not None and picture.key.options.is_draft
