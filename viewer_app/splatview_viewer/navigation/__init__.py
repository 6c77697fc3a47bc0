"""Where a scene is seen from: orbiting, flying, flights, what is up, bookmarks, cameras as text. Plain maths."""
