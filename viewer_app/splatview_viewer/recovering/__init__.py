"""What the viewer does when the graphics fail for the whole process: it says so, and starts itself anew."""
