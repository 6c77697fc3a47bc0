"""Which of a scene's Gaussians are drawn, and which stand out."""

from viewer_app.selecting.selection import EVERYTHING, HIDDEN, MARKED, Selection

__all__ = ["EVERYTHING", "HIDDEN", "MARKED", "Selection"]
