"""The screens of this machine, by the protocol of `core.screen`: a window, and a
framebuffer without a display.
"""
