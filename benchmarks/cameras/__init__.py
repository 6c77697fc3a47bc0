"""The parts of `benchmarks.camera`: detectors, and a viewer with its user."""
