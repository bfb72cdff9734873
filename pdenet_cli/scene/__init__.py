"""A scene: its pixels, what its file says of them, and what they mean."""
