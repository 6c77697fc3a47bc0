"""Training cameras as they are drawn.

The content of a stream, frusta, photographs, and the camera under the pointer.
"""
