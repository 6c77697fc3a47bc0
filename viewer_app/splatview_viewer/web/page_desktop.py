"""The clipboard and the files of a page's user, who may be at another machine."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING, get_args

from splatview_viewer.core.screen import Favour
from splatview_viewer.formats.pictures import safe_name
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from splatview_viewer.web.connection import PageConnection

log = logging.getLogger("splatview")


class PageDesktop:
    """The desktop of a page's user.

    Files are downloads, and of the clipboard only what was copied here is known.
    """

    favours: frozenset[Favour] = frozenset(get_args(Favour))

    def __init__(self, connection: PageConnection) -> None:
        self._connection = connection
        self._clipboard = ""
        self.is_full = False
        """True while the page fills the monitor, as it says."""

    def ask(self, favour: Favour) -> None:
        self._connection.send(m.Ask(favour))

    def leave_full(self) -> None:
        """Do nothing: the browser leaves the full screen with its own Escape."""

    def copy(self, text: str) -> None:
        self._clipboard = text
        self._connection.send(m.Clipboard(text))

    def pasted(self) -> str:
        return self._clipboard

    def hand_over(self, path: Path) -> None:
        try:
            if path.is_file():
                self._connection.offer(path.name, path, path.stat().st_size)
        except OSError as e:
            log.warning(
                "%s is not offered to the browser at %s: %s",
                path,
                self._connection.peer,
                e.strerror or e,
            )

    def keep(self, picture: np.ndarray, name: str) -> None:
        from PIL import Image

        png = io.BytesIO()
        Image.fromarray(picture).save(png, "PNG", compress_level=4)
        self._connection.offer(f"{safe_name(name)}.png", png.getvalue(), png.tell())
