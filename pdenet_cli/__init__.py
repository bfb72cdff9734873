"""pdenet: sharper hyperspectral images, and how far each pixel can be trusted."""

__version__ = "0.1.0"
