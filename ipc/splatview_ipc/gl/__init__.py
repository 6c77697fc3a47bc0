"""Pictures from CUDA or host memory to OpenGL and back.

`base` has the words and the protocols.

Nothing is imported here: OpenGL and torch are needed only by who uses a bridge.
"""
