"""The parts of the kernel of `machine`: what it knows of texts, lists, mappings, events and stacks.

Each returns GOOD, or why it cannot go on; then nothing has changed, so that it can be called again when there is room.
"""
# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np

from splatview_viewer.memory._compile import i64, inline, write
from splatview_viewer.memory._numba import types
from splatview_viewer.memory.loading._machine_tables import I32S, I64S, PRIME, U8S, mix, number_of
from splatview_viewer.memory.loading.entries import LIMIT, MAX_DEVICES
from splatview_viewer.memory.loading.machine import (
    BATCH,
    BIG,
    CELLS,
    DICT,
    ENTRY,
    FRAME,
    FRAMES,
    INT,
    KNOWN,
    LIST,
    MAPPING,
    MEMO,
    NEEDED,
    NEW,
    NONE,
    OBJECTS,
    ODD,
    PAIR,
    ROOM_CELLS,
    ROOM_FRAMES,
    ROOM_MEMO,
    ROOM_ROWS,
    ROOM_STACKS,
    ROWS,
    SEED,
    SEQUENCE,
    STACK,
    STACKS,
    TEXT,
    TRACE,
    TRACES,
    UNSET,
    USED_EMPTY,
    USED_STACK,
    Columns,
    Numbers,
    Operands,
    Stacks,
    Things,
    Words,
)

PAIRS = write(i64, 2)
OPERANDS = types.NamedTuple((U8S, I64S, I64S, U8S, I64S), Operands)
THINGS = types.NamedTuple((U8S, I64S, U8S, I64S), Things)
WORDS = types.NamedTuple((U8S, I64S, I32S), Words)
COLUMNS = types.NamedTuple((I32S, I64S, I64S, I64S, I32S, I32S, I32S, I32S, I32S), Columns)
STACKS_KEPT = types.NamedTuple((I64S, I64S, I32S, I32S), Stacks)
NUMBERS = types.NamedTuple((I64S, I32S, PAIRS, I32S, PAIRS), Numbers)
(ACTION, ADDR, SIZE, TIME, STREAM, POOL, STACK_KEY, CONTEXT, METADATA, DEVICE_FREE, FILENAME, OOM, NO_CONTEXT,
 EMPTY) = range(len(KNOWN))
MOST = 2**31 - 2
"""Objects and texts, whose numbers lie in 32 bits."""
GOOD = -1


@inline
def put_cell(o, first, last, c, operands, things):
    """Adds operands first to last - 1 to the content of an object. Returns why it cannot, or GOOD."""
    at = c[CELLS]
    count = last - first
    if at + 3 + count > len(things.cells):
        c[NEEDED] = at + 3 + count
        return ROOM_CELLS
    things.cells[at] = -1
    things.cells[at + 1] = count
    things.cells[at + 2] = at
    for i in range(count):
        things.cell_tags[at + 3 + i] = operands.tags[first + i]
        things.cells[at + 3 + i] = operands.values[first + i]
    head = things.contents[o]
    if head < 0:
        things.contents[o] = at
    else:
        things.cells[things.cells[head + 2]] = at
        things.cells[head + 2] = at
    c[CELLS] = at + 3 + count
    return GOOD


@inline
def put_row(o, first, last, c, operands, things, columns, numbers):
    """The mapping `o` is an event with these keys and values. Returns why it cannot be one, or GOOD."""
    row = c[ROWS]
    if row >= len(columns.action):
        c[NEEDED] = row + 1
        return ROOM_ROWS
    action = addr = size = time = np.int64(0)
    pool_number = stack_number = context_text = metadata_text = free = np.int64(-1)
    stream_value = np.int64(0)
    for i in range(first, last, 2):
        if operands.tags[i] != TEXT:
            return ODD
        key, tag, value = operands.values[i], operands.tags[i + 1], operands.values[i + 1]
        if key <= TIME:
            if key == ACTION:
                if tag != TEXT:
                    return ODD
                action = value
                continue
            if tag != BIG and (tag != INT or value < 0):
                return ODD
            if key == ADDR:
                addr = value
            elif key == SIZE:
                size = value
            else:
                time = value
        elif key == STREAM:
            if tag != INT:
                return ODD
            stream_value = value
        elif key == POOL:
            if tag != PAIR and tag != NONE:
                return ODD
            pool_number = value if tag == PAIR else np.int64(-1)
        elif key == STACK_KEY:
            stack_number = np.int64(-1)
            if tag == LIST:
                if things.kinds[value] == NEW or things.kinds[value] == USED_EMPTY:
                    things.kinds[value] = USED_EMPTY
                elif things.kinds[value] == STACK or things.kinds[value] == USED_STACK:
                    things.kinds[value] = USED_STACK
                    stack_number = things.contents[value]
                else:
                    return ODD
            elif tag != NONE:
                return ODD
        elif key == CONTEXT or key == METADATA:
            if tag != TEXT and tag != NONE:
                return ODD
            text = value if tag == TEXT and value != EMPTY else np.int64(-1)
            if key == METADATA:
                metadata_text = text
            else:
                context_text = text if text != NO_CONTEXT else np.int64(-1)
        elif key == DEVICE_FREE:
            free = value if tag == INT and 0 <= value < LIMIT else np.int64(-2)
    if not 0 <= time < LIMIT or (action != OOM and (not 0 <= size < LIMIT or addr < 0 <= addr + size)):
        return ODD
    if action == OOM and free != -1:  # it has no address, but what the driver still had
        if free < 0:
            return ODD
        addr = free
    number = number_of(stream_value, c, numbers.streams, numbers.stream_table)
    if number < 0:
        return ODD
    columns.action[row] = action
    columns.addr[row] = addr
    columns.size[row] = size
    columns.time_us[row] = time
    columns.stream[row] = number
    columns.pool[row] = pool_number
    columns.stack[row] = stack_number
    columns.context[row] = context_text
    columns.metadata[row] = metadata_text
    things.kinds[o] = ENTRY
    things.contents[o] = row
    c[ROWS] = row + 1
    return GOOD


@inline
def fill(o, first, last, c, operands, things, columns, numbers):
    """Sets keys and values of the mapping `o`. Returns why it cannot, or GOOD."""
    kind = things.kinds[o]
    if (last - first) % 2 or kind == ENTRY:
        return ODD
    if first == last:
        return GOOD
    if kind == NEW:
        kind = MAPPING
        for i in range(first, last, 2):
            if operands.tags[i] == TEXT and operands.values[i] == ACTION:
                return put_row(o, first, last, c, operands, things, columns, numbers)
            if operands.tags[i] == TEXT and operands.values[i] == FILENAME:
                kind = FRAME
    why = put_cell(o, first, last, c, operands, things)
    if why == GOOD:
        things.kinds[o] = kind
    return why


@inline
def put_stack(o, first, last, c, operands, things, stacks):
    """The list `o` has these frames, after those that it had. Returns why it cannot, or GOOD."""
    at = c[FRAMES]
    had = np.int64(0)
    before = np.int64(0)
    if things.kinds[o] == STACK:
        before = stacks.start[things.contents[o]]
        had = stacks.start[things.contents[o] + 1] - before
        if had < BATCH:
            return ODD
    count = had + last - first
    if at + count > len(stacks.frames):
        c[NEEDED] = at + count
        return ROOM_FRAMES
    n = c[STACKS]
    if n + 2 > len(stacks.start):
        c[NEEDED] = n + 2
        return ROOM_STACKS
    h = c[SEED]
    for i in range(had):
        stacks.frames[at + i] = stacks.frames[before + i]
        h = (h ^ stacks.frames[at + i]) * PRIME
    for i in range(last - first):
        if operands.tags[first + i] != DICT or things.kinds[operands.values[first + i]] != FRAME:
            return ODD
        stacks.frames[at + had + i] = operands.values[first + i]
        h = (h ^ operands.values[first + i]) * PRIME
    h = mix(h)
    mask = len(stacks.table) - 1
    place = h & mask
    while stacks.table[place] >= 0:
        s = stacks.table[place]
        if stacks.hashes[s] == h and stacks.start[s + 1] - stacks.start[s] == count:
            same = True
            for i in range(count):
                if stacks.frames[stacks.start[s] + i] != stacks.frames[at + i]:
                    same = False
                    break
            if same:
                things.kinds[o] = STACK
                things.contents[o] = s
                return GOOD
        place = (place + 1) & mask
    stacks.table[place] = n
    stacks.hashes[n] = h
    stacks.start[n] = at
    stacks.start[n + 1] = at + count
    c[STACKS] = n + 1
    c[FRAMES] = at + count
    things.kinds[o] = STACK
    things.contents[o] = n
    return GOOD


@inline
def put_trace(o, first, last, c, operands, things, numbers):
    """The list `o` has these events, after those that it had. Returns why it cannot, or GOOD."""
    t = things.contents[o]
    if things.kinds[o] == NEW:
        t = c[TRACES]
        if t >= MAX_DEVICES:
            return ODD
        numbers.traces[t, 0] = things.contents[operands.values[first]]
        numbers.traces[t, 1] = 0
    row = numbers.traces[t, 0] + numbers.traces[t, 1]
    for i in range(first, last):
        event = operands.values[i]
        if operands.tags[i] != DICT or things.kinds[event] != ENTRY or things.contents[event] != row:
            return ODD
        row += 1
    numbers.traces[t, 1] = row - numbers.traces[t, 0]
    if things.kinds[o] == NEW:
        things.kinds[o] = TRACE
        things.contents[o] = t
        c[TRACES] = t + 1
    return GOOD


@inline
def extend(o, first, last, c, operands, things, stacks, numbers):
    """Adds to the list `o`. Returns why it cannot, or GOOD."""
    if first == last:
        return GOOD
    kind = things.kinds[o]
    if kind == USED_STACK or kind == USED_EMPTY:
        return ODD
    if kind == TRACE:
        return put_trace(o, first, last, c, operands, things, numbers)
    if kind == STACK:
        return put_stack(o, first, last, c, operands, things, stacks)
    if kind == NEW and operands.tags[first] == DICT:
        if things.kinds[operands.values[first]] == ENTRY:
            return put_trace(o, first, last, c, operands, things, numbers)
        if things.kinds[operands.values[first]] == FRAME:
            return put_stack(o, first, last, c, operands, things, stacks)
    why = put_cell(o, first, last, c, operands, things)
    if why == GOOD:
        things.kinds[o] = SEQUENCE
    return why


@inline
def new_object(kind, c, things):
    """The number of a new object; there is room for it."""
    o = c[OBJECTS]
    things.kinds[o] = kind
    things.contents[o] = -1
    c[OBJECTS] = o + 1
    return o


@inline
def recall(place, depth, operands):
    """Puts what was kept on the stack, which has room for it. Returns why it cannot, or GOOD."""
    if place >= len(operands.memo_tags) or operands.memo_tags[place] == UNSET:
        return ODD
    operands.tags[depth] = operands.memo_tags[place]
    operands.values[depth] = operands.memo[place]
    return GOOD


@inline
def memoize(place, tag, value, c, operands):
    """Keeps a value. Returns why it cannot, or GOOD."""
    if place >= len(operands.memo_tags):
        if place > 2 * c[MEMO] + 65536 or place > LIMIT // 64:
            return ODD
        c[NEEDED] = place + 1
        return ROOM_MEMO
    if operands.memo_tags[place] == UNSET:
        c[MEMO] += 1
    operands.memo_tags[place] = tag
    operands.memo[place] = value
    return GOOD
