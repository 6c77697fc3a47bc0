"""What `benchmarks.camera` is made of: detectors, and the viewer with a user who looks at it."""
