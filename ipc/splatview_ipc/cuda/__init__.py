"""CUDA memory that other processes can open: the driver API, checked (`driver`), and shared memory (`memory`).

Importing it loads neither torch nor cuda-bindings, and nothing here makes a CUDA context unless it says so.
"""
