"""Callbacks for other people's trainers, one module for each, which imports the trainer's package."""
