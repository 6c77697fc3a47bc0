"""Bounds on everything that comes from outside.

They are checked before anything is allocated or opened.
"""

VERSION = "0.2.0"
"""Release of splatview; the build and `splatview.__version__` read it here. Refusals
for another protocol name it."""
PROTOCOL = 16
"""Version of messages and shared-memory layouts. Both sides exchange it first;
different ones do not talk."""

MAX_RUNS = 128
"""Runs that a viewer follows at a time: the newest ones."""
MAX_STREAMS = 256
"""Streams in one run."""
MAX_VIEWERS = 32
"""Viewers attached to one run at a time."""
MAX_VERSION = 40
"""Characters of a release's name."""
MAX_SELECTION_PIECE = 128 * 1024
"""Bytes of a piece of the mask of selected Gaussians."""
MAX_NAME = 200
"""Characters of a stream's or run's name."""
MAX_MESSAGE = 256 * 1024
"""Bytes of one message. What a run announces of its streams comes in several where one
does not hold it."""
MAX_TENSORS = 256
"""Tensors that travel together as one frame."""
MAX_TENSOR_NAME = 120
"""Characters of the name of a tensor, such as a parameter of a module."""
MAX_DIMS = 8
MAX_SHARDS = 64
"""Parts of one scene, each published by another process."""
MAX_EXTENT = 1 << 40
"""Elements along one dimension."""
MAX_META = 32
"""Entries of a frame's metadata."""
MAX_META_TEXT = 1024
MAX_META_BYTES = 48 * 1024
"""Bytes of all texts in the metadata that a caller gives a frame: a slot's header holds
them beside all else."""
MAX_PACE = 240.0
"""Versions of a stream a second that a viewer can say it takes: as many as come."""
MAX_COUNTER = 2**63 - 1
"""The largest version, and the last nanosecond since the epoch, that there may be."""
MAX_SEGMENT = 1 << 42
"""Bytes of one shared-memory segment."""
MAX_MEMORIES = 256
"""Allocations of GPU memory behind the tensors of one frame."""
MAX_PIECES = 4096
"""Physical chunks of one allocation of GPU memory."""
MIN_SLOTS = 2
MAX_SLOTS = 16
"""Slots of a ring: one to write into beside the newest frame."""
