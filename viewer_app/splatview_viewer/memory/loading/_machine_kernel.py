"""The kernel of `machine`: opcodes of a pickle, one after the other, over arrays.

Nothing that a file says is used as a place in an array before it has been compared with how long that is; where there
is not enough room the kernel stops before the opcode, so that it can be called again.
"""
# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np

from splatview_viewer.memory._compile import i64, kernel
from splatview_viewer.memory.loading._machine_parts import (
    COLUMNS,
    GOOD,
    MOST,
    NUMBERS,
    OPERANDS,
    STACKS_KEPT,
    THINGS,
    WORDS,
    extend,
    fill,
    memoize,
    new_object,
    put_cell,
    recall,
)
from splatview_viewer.memory.loading._machine_tables import I64S, U8S, find_text, pair_of, whole, whole4
from splatview_viewer.memory.loading.machine import (
    AT,
    BIG,
    BLOB,
    DEPTH,
    DICT,
    DONE,
    END,
    FALSE,
    FLOAT,
    INT,
    LIST,
    MARKS,
    MAX_PIECE,
    MEMO,
    MORE,
    NEEDED,
    NEW,
    NONE,
    OBJECTS,
    ODD,
    PAIR,
    ROOM_BLOB,
    ROOM_MARKS,
    ROOM_OBJECTS,
    ROOM_OPERANDS,
    ROOM_TEXTS,
    SEQUENCE,
    TEXT,
    TEXTS,
    TRUE,
    TUPLE,
)

# Opcodes by their names in pickletools.
(MARK, STOP, NO, BINFLOAT, BININT, BININT1, BININT2, UNICODE4, APPEND, APPENDS, GET1, GET4, PUT1, PUT4, SETITEM,
 SETITEMS, TUPLE_MARK, NEW_DICT, NEW_LIST, NEW_TUPLE) = (ord(c) for c in "(.NGJKMXaehjqrsut}])")
PROTO, TUPLE1, TUPLE2, TUPLE3, NEWTRUE, NEWFALSE, LONG1, UNICODE1, MEMOIZE, FRAMING = (
    0x80, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x94, 0x95)
ARGUMENTS = np.full(256, -1, np.int8)
"""How many bytes follow each opcode at least; -1: it is not known here."""
for _op, _count in {BINFLOAT: 8, BININT: 4, BININT1: 1, BININT2: 2, UNICODE4: 4, GET1: 1, GET4: 4, PUT1: 1, PUT4: 4,
                    PROTO: 1, LONG1: 1, UNICODE1: 1, FRAMING: 8, **dict.fromkeys(
                        (MARK, STOP, NO, APPEND, APPENDS, SETITEM, SETITEMS, TUPLE_MARK, NEW_DICT, NEW_LIST, NEW_TUPLE,
                         TUPLE1, TUPLE2, TUPLE3, NEWTRUE, NEWFALSE, MEMOIZE), 0)}.items():
    ARGUMENTS[_op] = _count


@kernel(i64(U8S, I64S, OPERANDS, THINGS, WORDS, COLUMNS, STACKS_KEPT, NUMBERS), counted=False)
def run(data, c, operands, things, words, columns, stacks, numbers):
    """Works through data from c[AT] to c[END]. Returns why it stopped; c[AT] is the opcode that comes next."""
    tags, values, marks = operands.tags, operands.values, operands.marks
    at, end, depth = c[AT], c[END], c[DEPTH]
    fence = marks[c[MARKS] - 1] if c[MARKS] else np.int64(0)
    why = MORE
    while at < end:
        op = data[at]
        count = np.int64(ARGUMENTS[op])
        if count < 0:
            why = ODD
            break
        a = at + 1
        then = a + count
        if then > end:
            break
        if depth + 1 >= len(tags):
            c[NEEDED] = depth + 2
            why = ROOM_OPERANDS
            break

        if op == GET4:  # mostly many of them, the frames of a stack
            problem = recall(whole4(data, a), depth, operands)
            depth += 1
            while problem == GOOD and then + 5 <= end and data[then] == GET4 and depth + 1 < len(tags):
                problem = recall(whole4(data, then + 1), depth, operands)
                then += 5
                depth += 1
            if problem != GOOD:
                why = problem
                break
        elif op == GET1:
            problem = recall(np.int64(data[a]), depth, operands)
            if problem != GOOD:
                why = problem
                break
            depth += 1
        elif op == MEMOIZE or op == PUT1 or op == PUT4:
            if depth <= fence:
                why = ODD
                break
            place = c[MEMO] if op == MEMOIZE else whole(data, a, count)
            problem = memoize(place, tags[depth - 1], values[depth - 1], c, operands)
            if problem != GOOD:
                why = problem
                break
        elif op == BININT1 or op == BININT2:
            tags[depth] = INT
            values[depth] = whole(data, a, count)
            depth += 1
        elif op == BININT:
            tags[depth] = INT
            number = whole4(data, a)
            values[depth] = number - ((number >> 31) << 32)
            depth += 1
        elif op == LONG1:
            count = np.int64(data[a])
            a += 1
            then = a + count
            if count > 9 or (count == 9 and then <= end and (data[a + 7] < 128 or data[a + 8] > 0)):
                why = ODD
                break
            if then > end:
                break
            number = np.int64(0)
            for i in range(min(count, 8)):
                number |= np.int64(data[a + i]) << (8 * i)
            if 0 < count < 8 and data[a + count - 1] >= 128:
                number -= np.int64(1) << (8 * count)
            tags[depth] = INT if count < 9 else BIG
            values[depth] = number
            depth += 1
        elif op == MARK:
            n = c[MARKS]
            if n >= len(marks):
                c[NEEDED] = n + 1
                why = ROOM_MARKS
                break
            marks[n] = depth
            c[MARKS] = n + 1
            fence = depth
        elif op == UNICODE1 or op == UNICODE4:
            length = whole(data, a, count)
            a += count
            then = a + length
            if then > end:
                if length > MAX_PIECE:
                    why = ODD
                break
            number = find_text(data, a, length, c, words)
            if number < 0:
                t = c[TEXTS]
                b = c[BLOB]
                if t >= MOST:
                    why = ODD
                    break
                if b + length > len(words.blob):
                    c[NEEDED] = b + length
                    why = ROOM_BLOB
                    break
                if t + 2 > len(words.start):
                    c[NEEDED] = t + 2
                    why = ROOM_TEXTS
                    break
                for i in range(length):
                    words.blob[b + i] = data[a + i]
                words.start[t + 1] = b + length
                words.table[-1 - number] = t
                c[TEXTS] = t + 1
                c[BLOB] = b + length
                number = t
            tags[depth] = TEXT
            values[depth] = number
            depth += 1
        elif op == NEW_DICT or op == NEW_LIST:
            if c[OBJECTS] >= MOST:
                why = ODD
                break
            if c[OBJECTS] >= len(things.kinds):
                c[NEEDED] = c[OBJECTS] + 1
                why = ROOM_OBJECTS
                break
            tags[depth] = DICT if op == NEW_DICT else LIST
            values[depth] = new_object(NEW, c, things)
            depth += 1
        elif op == APPENDS or op == SETITEMS or op == APPEND or op == SETITEM:
            marked = op == APPENDS or op == SETITEMS
            if marked:
                n = c[MARKS]
                if n == 0:
                    why = ODD
                    break
                first = fence
                below = marks[n - 2] if n > 1 else np.int64(0)
            else:
                n = np.int64(0)
                first = depth - (1 if op == APPEND else 2)
                below = fence
            listed = op == APPENDS or op == APPEND
            if first - 1 < below or tags[first - 1] != (LIST if listed else DICT):
                why = ODD
                break
            o = values[first - 1]
            if listed:
                problem = extend(o, first, depth, c, operands, things, stacks, numbers)
            else:
                problem = fill(o, first, depth, c, operands, things, columns, numbers)
            if problem != GOOD:
                why = problem
                break
            depth = first
            if marked:
                c[MARKS] = n - 1
                fence = below
        elif op == TUPLE2 or op == TUPLE_MARK or op == TUPLE1 or op == TUPLE3 or op == NEW_TUPLE:
            n = c[MARKS]
            if op == TUPLE_MARK:
                if n == 0:
                    why = ODD
                    break
                first = fence
            else:
                first = depth - (2 if op == TUPLE2 else 1 if op == TUPLE1 else 3 if op == TUPLE3 else 0)
                if first < fence:
                    why = ODD
                    break
            if depth - first == 2 and tags[first] == INT and tags[first + 1] == INT and values[first] >= 0 and (
                    values[first + 1] >= 0):
                number = pair_of(values[first], values[first + 1], c, numbers.pools, numbers.pool_table)
                if number < 0:
                    why = ODD
                    break
                tags[first] = PAIR
            else:
                if c[OBJECTS] >= len(things.kinds):
                    c[NEEDED] = c[OBJECTS] + 1
                    why = ROOM_OBJECTS
                    break
                things.contents[c[OBJECTS]] = -1
                problem = put_cell(c[OBJECTS], first, depth, c, operands, things)
                if problem != GOOD:
                    why = problem
                    break
                cell = things.contents[c[OBJECTS]]
                number = new_object(SEQUENCE, c, things)
                things.contents[number] = cell
                tags[first] = TUPLE
            values[first] = number
            depth = first + 1
            if op == TUPLE_MARK:
                c[MARKS] = n - 1
                fence = marks[n - 2] if n > 1 else np.int64(0)
        elif op == NO or op == NEWTRUE or op == NEWFALSE:
            tags[depth] = NONE if op == NO else TRUE if op == NEWTRUE else FALSE
            values[depth] = 0
            depth += 1
        elif op == BINFLOAT:
            bits = np.int64(0)
            for i in range(8):
                bits = (bits << 8) | np.int64(data[a + i])
            tags[depth] = FLOAT
            values[depth] = bits
            depth += 1
        elif op == PROTO:
            if not 2 <= data[a] <= 5:
                why = ODD
                break
        elif op == STOP:
            why = DONE if depth == 1 and c[MARKS] == 0 else ODD
            at = then
            break
        # what is left is FRAMING, which says how many bytes belong together
        at = then
    c[AT], c[DEPTH] = at, depth
    return why
