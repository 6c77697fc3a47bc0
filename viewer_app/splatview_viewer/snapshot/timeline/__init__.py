"""Layout of the pictures of a trace, and the painting of their columns of pixels; only `compiled` imports numba."""
