"""What the view of Gaussians is made of: what it shares (`content`), its picture, and its tools, one file each."""
