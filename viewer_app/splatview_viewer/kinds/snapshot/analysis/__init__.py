"""Answers about a snapshot: who holds the memory, what grew, what leaks, why it did not fit, what a stack means.

Nothing here draws. Ids are `int32`, masks `bool (A,)`; where `ids` can be given, a mask or None for all will do.
Everything is quick on ten million events; what is worked out once is kept with the snapshot. Any thread may call.

    table = Tables(snapshot).group(trace, live_ids(trace, moment), "stack")
    table[0].label, table[0].bytes, table[0].allocations
"""

from __future__ import annotations

from splatview_viewer.kinds.snapshot.analysis.categories import CATEGORIES, categories
from splatview_viewer.kinds.snapshot.analysis.colors import COLOR_BYS, ColorBy, Colors, colors
from splatview_viewer.kinds.snapshot.analysis.details import (
    ACTIVE,
    INACTIVE,
    PENDING,
    Details,
    FrameLine,
    Mark,
    SegmentsAt,
    describe,
    marks,
    moment_text,
    segments_at,
    stack_lines,
    summary,
)
from splatview_viewer.kinds.snapshot.analysis.flame import FlameGraph, flame
from splatview_viewer.kinds.snapshot.analysis.frames import (
    MACHINERY,
    frame_kinds,
    frame_text,
    short_file,
    short_name,
    sites,
    stack_keys,
    stack_text,
    user_frames,
)
from splatview_viewer.kinds.snapshot.analysis.search import HELP, Hits, frames_with, search
from splatview_viewer.kinds.snapshot.analysis.tables import (
    BYS,
    PERIODS,
    By,
    Change,
    Comparison,
    Holder,
    Oom,
    Row,
    Side,
    Suspect,
    Table,
    Tables,
    compare,
    leaks,
    post_mortem,
)
from splatview_viewer.kinds.snapshot.model import (
    address_text,
    live_bytes,
    live_ids,
    live_mask,
    parse_size,
    peak_moment,
    pool_text,
    stream_text,
)
from splatview_viewer.ui.format import age_text, change_text, count_text, exact_size_text, size_text

__all__ = [
    "ACTIVE", "BYS", "CATEGORIES", "COLOR_BYS", "HELP", "INACTIVE", "MACHINERY", "PENDING", "PERIODS", "By",
    "Change", "ColorBy", "Colors", "Comparison", "Details", "FlameGraph", "FrameLine", "Hits", "Holder", "Mark",
    "Oom", "Row", "SegmentsAt", "Side", "Suspect", "Table", "Tables", "address_text", "age_text", "categories",
    "change_text", "colors", "compare", "count_text", "describe", "exact_size_text", "flame", "frame_kinds",
    "frame_text", "frames_with", "leaks", "live_bytes", "live_ids", "live_mask", "marks", "moment_text",
    "parse_size", "peak_moment", "pool_text", "post_mortem", "search", "segments_at", "short_file", "short_name",
    "sites", "size_text", "stack_keys", "stack_lines", "stack_text", "stream_text", "summary", "user_frames",
]
