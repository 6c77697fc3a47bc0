"""Two of a thing beside each other, or several together: pictures, scenes, views."""
