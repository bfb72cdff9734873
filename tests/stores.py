"""HDF5 and netCDF files as other programs write them."""

import h5py


def make(path, **datasets):
    """An HDF5 file of these datasets; two underscores in a name lead into a group."""
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name.replace("__", "/")] = values
    return path


def netcdf(path, cubes, sizes, lists=None):
    """A netCDF-4 file of cubes and lists as {path: (names of the axes, numbers)}, its dimensions at the top."""
    with h5py.File(path, "w") as file:
        for name, size in sizes.items():
            file.create_dataset(name, (size,), ">f4").make_scale(name)
        for name, (axes, values) in {**cubes, **(lists or {})}.items():
            file[name] = values
            for place, axis in enumerate(axes):
                file[name].dims[place].attach_scale(file[axis])
    return path
