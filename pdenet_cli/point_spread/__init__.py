"""How wide the point spread of a scene is, by the edges that are in it."""
