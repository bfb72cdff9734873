"""Models: a network, how it describes itself, and its file."""
