"""Numbers over the course of a training, as the viewer holds them: their curves, smoothed, in columns of pixels."""
