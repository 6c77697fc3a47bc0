"""Calls of functions that draw scenes: what they are given, and their pictures' way.

camera = RenderCamera.of(draw, device)                # camera.py
picture = draw_picture(function, (camera,), controls)  # function.py
answers.put(draw, picture, clock)                      # answers.py
"""
