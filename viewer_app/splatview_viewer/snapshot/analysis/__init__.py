"""Answers about a snapshot: holders of memory, growth, leaks, failed allocations, stacks.

Nothing here draws, and any thread may call. Ids are `int32`, masks `bool (A,)`; a mask of
None stands for all allocations.
"""
