"""The parts of the view of memory snapshots: what it knows (`content`), what one user looks at (`state`), and what is
drawn."""
