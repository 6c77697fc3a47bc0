"""The screens of this machine: a window, and a framebuffer without a display.

Both follow the protocol of `core.screen`.
"""
