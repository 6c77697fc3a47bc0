"""CUDA kernels of the viewer's own, compiled on the user's machine when they are first needed."""
