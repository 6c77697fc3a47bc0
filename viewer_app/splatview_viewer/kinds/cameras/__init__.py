"""The cameras that a scene is trained with: where they stand, their photographs, and how they are drawn."""
