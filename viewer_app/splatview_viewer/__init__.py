"""The viewer process: polls streams, draws them, shows the picture on a screen."""
