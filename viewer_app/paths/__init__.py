"""Camera paths: key frames and what lies between them, as files, and as films."""

from viewer_app.paths.path import CameraPath, Key

__all__ = ["CameraPath", "Key"]
