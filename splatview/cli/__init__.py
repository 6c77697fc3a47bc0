"""The commands that the command line answers itself, one file each."""
