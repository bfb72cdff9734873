"""A scene seen by a posterior: tile by tile, samples become maps."""
