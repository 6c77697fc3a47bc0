"""The parts of the GPU's benchmarks: load, scenes, viewer with a user, clocks.

The viewer is always the program that a user starts (`splatview serve`), in a process of
its own, with its own defaults unless a line of a table says otherwise. `driver` only
counts at its screen and lays a hand on the mouse.
"""
