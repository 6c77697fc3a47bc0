"""Answers about a snapshot: who holds the memory, what grew, what leaks, why it did not fit, what a stack means.

Nothing here draws. Ids are `int32`, masks `bool (A,)`; None stands for all allocations.
Everything is quick on ten million events; what is worked out once is kept with the snapshot. Any thread may call.

    table = group(snapshot, trace, live_mask(trace, moment), "stack")
    table[0].label, table[0].bytes, table.allocations(table[0].key)
"""
