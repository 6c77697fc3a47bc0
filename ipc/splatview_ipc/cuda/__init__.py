"""CUDA memory that other processes can open.

`driver` is the driver API, checked, `memory` the shared memory. Importing this room
loads neither torch nor cuda-bindings, and nothing here makes a CUDA context unless it
says so.
"""
