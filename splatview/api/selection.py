"""`selection`: the Gaussians that a viewer's user has selected, as a mask."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import (
    capturing,
    public,
    session,
    started_publisher,
    untraced_function,
)

if TYPE_CHECKING:
    import torch

    from splatview_ipc.kinds import ValueLayout
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.selection_masks import SelectionMask
    from splatview_ipc.publisher.stream import Stream

_log = logging.getLogger("splatview")


class SelectionReader:
    """The newest mask that viewers have sent of a stream, and the tensor of it."""

    def __init__(self, publisher: Publisher, stream: Stream) -> None:
        """Have viewers send what is selected in a stream."""
        self.publisher = publisher
        self.stream = stream
        self.newest: SelectionMask | None = None
        """Set by the helper thread."""
        self.tensor: torch.Tensor | None = None
        """What the script is given."""
        self.used_mask: SelectionMask | None = None
        self.used_layout: ValueLayout | None = None
        """The mask and the layout that `tensor` belongs to."""
        publisher.on_request["SelectionMask", stream.name] = self.take
        stream.wants_selection = True
        publisher.wake()

    def take(self, mask: SelectionMask) -> None:
        """Take a mask that has come. On the helper thread."""
        self.newest = mask

    def update(self) -> torch.Tensor | None:
        """Make the tensor anew, of the newest mask for the newest Gaussians."""
        mask = self.newest
        layout = self.stream.layout
        tensor = None
        if mask is not None and layout is not None:
            # As many, and at no time more or fewer since the mask has come.
            are_same = mask.resize_count == self.stream.resize_count
            if are_same and mask.count == layout.shape[0]:
                tensor = _tensor_of(mask, layout.device)
        self.tensor = tensor
        self.used_mask = mask
        self.used_layout = layout
        return tensor


_selections: dict[str, SelectionReader] = {}
"""By stream, as they were asked for."""
_logged_parts: set[str] = set()
"""Parts of scenes for which it was logged that they have no mask."""


@untraced_function
def selection(name: str = "gaussians") -> torch.Tensor | None:
    """Return which Gaussians a viewer's user has selected, as a mask of the published ones.

    A script prunes, freezes or counts by it what was marked by hand::

        splatview.publish(gaussians)
        mask = splatview.selection()
        if mask is not None:
            gaussians = {key: value[~mask] for key, value in gaussians.items()}

    Selected are the Gaussians that are chosen by box, lasso or brush; where none is
    chosen, those that filter, crop and hiding leave visible, which viewers look at again
    as the Gaussians change, twice a second at most. The viewer whose user changed its
    selection last counts, also after it was closed. Viewers send their selection once
    the script has called this, when it has rested for a moment.

    The mask is of the Gaussians that were published last. After their number has
    changed the result is None until a viewer has sent a mask of the new ones, and so it
    is within a captured CUDA graph while there is no tensor yet. As long as nothing
    changes the same tensor is returned: do not write to it. Never waits for a viewer.

    Args:
        name: the stream's, as in `publish`.

    Returns:
        A bool tensor (N,) on the device of the published Gaussians; None while nothing is
        selected, and for a part of a scene that was published with `shard`.

    Raises:
        TypeError, ValueError: no name, or one of a stream that shows no Gaussians.
    """
    reader = _selections.get(name)
    if reader is None or reader.publisher is not started_publisher():
        return _first_selection(name)
    if reader.used_mask is reader.newest and reader.used_layout is reader.stream.layout:
        return reader.tensor
    return _update(reader)


@public()
def _update(reader: SelectionReader) -> torch.Tensor | None:
    """Return the mask that has changed."""
    if not capturing():
        return reader.update()
    if reader.used_layout is reader.stream.layout:
        return reader.tensor
    return None


@public()
def _first_selection(name: str) -> torch.Tensor | None:
    """Have viewers send the selection of a stream, if that is published."""
    checks.stream_name(name)
    publisher = started_publisher()
    entry: Any = session().published.get(name)
    if publisher is None or entry is None:
        return None
    stream = entry.stream
    if entry.layout.kind != "gaussians":
        raise ValueError(
            f"stream {name!r} shows {entry.layout.kind}; only Gaussians are selected: name "
            "a stream of theirs"
        )
    rank_of, _ = stream.shard
    if rank_of is not None:
        if name not in _logged_parts:
            _logged_parts.add(name)
            _log.warning(
                "splatview.selection: %r is a part of a scene, of which viewers select "
                "only in the whole; the result is None",
                name,
            )
        return None
    reader = SelectionReader(publisher, stream)
    _selections[name] = reader
    return reader.tensor


def _tensor_of(mask: SelectionMask, device: str) -> torch.Tensor | None:
    """Return (N,) bool on a device; None where nothing is selected."""
    import torch

    if not mask.count:
        return None
    packed = torch.frombuffer(mask.bits, dtype=torch.uint8)
    if device != "cpu":
        # Pinned, for the copy not to wait for the GPU's queue.
        packed = packed.pin_memory().to(device, non_blocking=True)
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
    bits = (packed[:, None] >> shifts) & 1
    return bits.flatten()[: mask.count].bool()
