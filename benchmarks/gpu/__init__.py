"""What the benchmarks on a GPU share: the load, the scenes, the viewer with a user at it, clocks.

The viewer is always the program that a user starts (`splatview serve`), in a process of its own, with its own defaults
unless a line of a table says otherwise. `driver` only counts at its screen and lays a hand on the mouse.
"""
