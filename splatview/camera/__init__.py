"""What `splatview camera` runs: a process that captures pictures, and one that looks for things in them."""
