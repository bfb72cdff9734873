"""A cube among named arrays with attributes, as in HDF5, netCDF-4 and Zarr: how it is found and laid out.

What we write follows the CF conventions (dimensions named as in the input, else band, y, x; coordinates; a
`spatial_ref` variable), so that xarray, GDAL and netCDF tools understand it. What we read may have less metadata.
"""
