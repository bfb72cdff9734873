"""The plugin and its Processing provider, with the path of pdenet as a setting."""

import os
import shutil

from processing.core.ProcessingConfig import ProcessingConfig, Setting
from qgis.core import QgsApplication, QgsProcessingProvider

from .algorithms import ALGORITHMS

GROUP, COMMAND = "pdenet", "PDENET_COMMAND"


def usual_command():
    """The command in the environment variable PDENET_COMMAND, else the program on the search path."""
    return os.environ.get(COMMAND) or shutil.which("pdenet") or "pdenet"


class Provider(QgsProcessingProvider):
    """The algorithms of pdenet."""

    def id(self):
        return "pdenet"

    def name(self):
        return "pdenet"

    def load(self):
        ProcessingConfig.settingIcons[GROUP] = self.icon()
        ProcessingConfig.addSetting(Setting(GROUP, COMMAND, "Path of the program pdenet", usual_command()))
        ProcessingConfig.readSettings()
        self.refreshAlgorithms()
        return True

    def unload(self):
        ProcessingConfig.removeSetting(COMMAND)

    def loadAlgorithms(self):  # noqa: N802
        for algorithm in ALGORITHMS:
            self.addAlgorithm(algorithm(lambda: ProcessingConfig.getSetting(COMMAND) or usual_command()))


class Plugin:
    """What QGIS loads and unloads."""

    def __init__(self):
        self.provider = None

    def initProcessing(self):  # noqa: N802
        self.provider = Provider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self):  # noqa: N802
        self.initProcessing()

    def unload(self):
        QgsApplication.processingRegistry().removeProvider(self.provider)
