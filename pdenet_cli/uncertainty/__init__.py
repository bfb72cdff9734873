"""From the samples of a tile to maps, and from errors seen to errors to expect."""
