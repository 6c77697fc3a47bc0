"""What `benchmarks.camera` is made of: detectors, the viewer with somebody who looks at it, and the design held against
ours."""
