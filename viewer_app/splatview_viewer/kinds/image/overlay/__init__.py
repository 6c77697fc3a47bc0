"""What is drawn over an image: boxes, points, lines, masks and words that belong to one of its versions."""
