"""One user of the viewer: its viewports, and the panel and words that Dear ImGui draws
around and over the pictures.
"""
