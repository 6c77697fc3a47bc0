"""Second runs of this process, which readers take for those of other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview.adapters import recognise
from splatview_ipc import Publisher

if TYPE_CHECKING:
    from splatview_ipc.publisher.stream import ValueLayout as Form


class OtherRun(Publisher):
    """A run beside that of `splatview.publish`."""

    def __init__(self, name: str = "other") -> None:
        super().__init__(name)
        self._forms: dict[str, Form] = {}

    def show(self, value: Any, name: str, **meta: Any) -> None:
        """Publish the next version of a stream; all versions have one shape."""
        form = self._forms.get(name)
        if form is None:
            form = self._forms[name] = recognise(value, None, meta)
            self.stream(name, form.kind).describe(form)
        tensors = form.collect(value)
        assert tensors is not None
        self.streams[name].publish((tensors, meta))
