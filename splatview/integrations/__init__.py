"""Callbacks for other people's trainers, a module each, which imports their package."""
