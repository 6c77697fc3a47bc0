"""Lays out the pictures of a trace, and paints them. Only `kernels` imports numba."""
