"""Second runs of this process, which readers take for those of other programs."""

from __future__ import annotations

from typing import Any

from splatview.adapters import recognise
from splatview_ipc.publisher.publisher import Publisher


class OtherRun(Publisher):
    """A run beside that of `splatview.publish`."""

    def __init__(self, name: str = "other") -> None:
        super().__init__(name)
        self._layouts: dict[str, Any] = {}

    def show(self, value: Any, name: str, **meta: Any) -> None:
        """Publish the next version of a stream; all versions have one shape."""
        layout = self._layouts.get(name)
        if layout is None:
            layout = self._layouts[name] = recognise(value, None, meta)
            self.stream(name, layout.kind).describe(layout)
        published = layout.match(value, meta)
        assert published is not None
        self.streams[name].publish(published)
