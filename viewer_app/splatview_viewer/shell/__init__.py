"""The viewer of one user: viewports, and the panel and words that Dear ImGui draws."""
