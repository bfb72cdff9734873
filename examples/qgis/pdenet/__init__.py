"""A plugin for QGIS: Processing algorithms that run the command pdenet."""


def classFactory(iface):  # noqa: N802 the name that QGIS asks for
    """The plugin; `iface` is None where QGIS has no window."""
    from .provider import Plugin

    return Plugin()
