"""What a viewer gets of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from splatview.ipc import Subscriber


def frames_of(subscriber: Subscriber, name: str, version: int, wait_until: Callable[..., Any]) -> dict[str, np.ndarray]:
    """The tensors of a version of a stream, or of a newer one, as a viewer gets them."""
    def read() -> dict[str, np.ndarray] | None:
        subscriber.poll()
        for stream in subscriber.streams:
            if stream.name == name:
                stream.open()
                frame = stream.read(version - 1)
                if frame is not None:
                    with frame:
                        copies = {field: t.to_float32() for field, t in frame.tensors.items()}
                        return copies if frame.intact() else None
        return None

    return wait_until(read, what=f"version {version} of {name}")
