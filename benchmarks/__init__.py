"""Measure what splatview claims to be fast at, as ratios in one run.

Correctness is checked in the same run.

`python -m benchmarks` runs all of them and prints tables; `python -m benchmarks publish
--save` runs one and keeps its rows in benchmarks/results, from which `python -m
benchmarks --page` makes docs/performance.md. Each module has `run() -> list[dict[str,
str]]`: one dictionary per line of its table. Those named gpu_... need an NVIDIA GPU and
a minute each.
"""
