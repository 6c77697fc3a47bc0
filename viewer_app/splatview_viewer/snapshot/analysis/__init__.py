"""Answers about a snapshot: who holds the memory, what grew, what leaks, why it did not fit, what a stack means.

Nothing here draws. Ids are `int32`, masks `bool (A,)`; None stands for all allocations. Any thread may call.
"""
