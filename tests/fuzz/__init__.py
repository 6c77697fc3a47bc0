"""Fuzzing of everything here that reads what others wrote: any bytes give a value or
one of the declared errors, in bounded time and memory. `python -m fuzz.run TARGET`,
from within tests/, runs one of `fuzz.targets.TARGETS`.
"""
