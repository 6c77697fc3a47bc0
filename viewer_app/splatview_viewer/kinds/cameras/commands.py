"""Commands of the cameras of a training."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.cameras.view import CamerasView

_MAX_FOUND = 20


def _see_all(view: CamerasView) -> None:
    view.see_all()


def _open_next(view: CamerasView) -> None:
    view.open_next(1)


def _open_previous(view: CamerasView) -> None:
    view.open_next(-1)


def _close(view: CamerasView) -> None:
    view.open(None)


def _magnify(view: CamerasView) -> None:
    view.magnify_photo()


def _why_not_open(view: CamerasView) -> str | None:
    if view.opened is not None:
        return None
    return "no photograph is open"


def _open(index: int, view: CamerasView) -> None:
    view.open(index)


COMMANDS: tuple[Command[CamerasView], ...] = (
    Command("cameras.fit", "See all cameras", _see_all, ("F",), icon="fit"),
    Command(
        "cameras.next",
        "The photograph after",
        _open_next,
        ("Page down",),
        icon="right",
        repeats=True,
    ),
    Command(
        "cameras.previous",
        "The photograph before",
        _open_previous,
        ("Page up",),
        icon="right",
        repeats=True,
    ),
    Command(
        "cameras.zoom.1",
        "Zoom: the photograph 1:1",
        _magnify,
        ("1",),
        icon="find",
        reason=_why_not_open,
    ),
    Command(
        "cameras.close",
        "Close the photograph",
        _close,
        icon="close",
        reason=_why_not_open,
    ),
)


def photo_commands(view: CamerasView, text: str) -> Sequence[Command[CamerasView]]:
    """Return commands that open the photographs whose numbers a text begins."""
    numerals = [word for word in text.split() if word.isascii() and word.isdigit()]
    cameras = view.data.cameras
    if not numerals or cameras is None:
        return ()
    indices = [i for i in range(len(cameras)) if str(i).startswith(numerals[0])]
    return [
        Command(
            f"cameras.open.{index}",
            f"Photograph {index}: {cameras.label(index)}",
            partial(_open, index),
            icon="image",
            group="Cameras",
        )
        for index in indices[:_MAX_FOUND]
    ]
