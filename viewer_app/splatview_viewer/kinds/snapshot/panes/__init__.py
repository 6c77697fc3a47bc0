"""The panes: what stands below the timeline in each tab, and the details of what was clicked."""
