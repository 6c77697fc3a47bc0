"""A camera path that a page has sent, on its way to the view that it was dropped on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview_viewer.core.view import View
    from splatview_viewer.formats.nerfstudio import Film


class ArrivingFilm:
    """A thread that has the file decoded by a bounded program. Everything else belongs to the thread that draws."""

    def __init__(self, file: Path, view: View, wake: Callable[[], None], done: Callable[[Path], None]) -> None:
        """`wake` ends the loop's sleep; `done` is called with the file, once, when it is not needed any more."""
        self.file, self.view = file, view
        self.film: Film | None = None
        self.error = ""
        """Why there is no film."""
        self.finished = False
        self._wake, self._done = wake, done
        self._closed = False
        threading.Thread(target=self._read, name=f"read {file.name}", daemon=True).start()

    def _read(self) -> None:
        from splatview_viewer.formats.untrusted import read_untrusted_film

        try:
            self.film = read_untrusted_film(self.file, self._report)
        except _Cancelled:
            pass
        except ViewerError as e:
            self.error = str(e)
        except Exception as e:  # a fault of ours must not end the viewer
            self.error = f"{self.file}: could not be read: {type(e).__name__}: {e}"
        finally:
            self.finished = True
            self._done(self.file)
            if not self._closed:
                self._wake()

    def _report(self, what: str, fraction: float) -> None:
        if self._closed:
            raise _Cancelled

    def close(self) -> None:
        """End the reading. Idempotent."""
        self._closed = True


class _Cancelled(Exception):  # noqa: N818  (not an error: it ends the thread)
    """The film is not wanted any more."""
