"""The scripts that draw scenes in a browser, and the page of a scene that is one file."""
