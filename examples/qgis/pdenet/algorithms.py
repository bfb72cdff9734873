"""The algorithms: a raster in, the finer raster out, or a folder of maps of how far to trust it."""

import shlex
from pathlib import Path

from qgis.core import (
    QgsProcessingAlgorithm,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFolderDestination,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
)

from .runner import RunError, run

SCALES = ("2", "4", "8")
RASTERS = (".tif", ".tiff", ".img")


class Algorithm(QgsProcessingAlgorithm):
    """What both algorithms share; `command` gives the program and its first arguments."""

    def __init__(self, command):
        super().__init__()
        self.command = command

    def createInstance(self):  # noqa: N802
        return type(self)(self.command)

    def initAlgorithm(self, configuration=None):  # noqa: N802
        self.addParameter(QgsProcessingParameterRasterLayer("INPUT", "Hyperspectral image"))
        self.addParameter(QgsProcessingParameterEnum("SCALE", "Times finer", SCALES, defaultValue=1))
        self.addParameter(
            QgsProcessingParameterNumber("SAMPLES", "Monte-Carlo samples", defaultValue=8, minValue=1)
        )
        self.addParameter(QgsProcessingParameterString("MODEL", "Model, by name or file", "", optional=True))
        more = QgsProcessingParameterString("OPTIONS", "More options of the command", "", optional=True)
        more.setFlags(more.flags() | QgsProcessingParameterDefinition.FlagAdvanced)
        self.addParameter(more)
        self.addParameter(self.output())

    def processAlgorithm(self, parameters, context, feedback):  # noqa: N802
        source = Path(self.parameterAsRasterLayer(parameters, "INPUT", context).source())
        target = Path(self.target(parameters, context))
        model = self.parameterAsString(parameters, "MODEL", context)
        arguments = [self.name(), str(source), "--output", str(target), "--overwrite"]
        arguments += ["--scale", SCALES[self.parameterAsEnum(parameters, "SCALE", context)]]
        arguments += ["--samples", str(self.parameterAsInt(parameters, "SAMPLES", context))]
        arguments += ["--model", model] if model else []
        arguments += shlex.split(self.parameterAsString(parameters, "OPTIONS", context))
        feedback.pushCommandInfo(shlex.join([self.command(), *arguments]))

        def progress(share, text):
            feedback.setProgress(100 * share)
            feedback.setProgressText(text)

        try:
            run(self.command(), arguments, progress, feedback.pushInfo, feedback.isCanceled)
        except RunError as error:
            raise QgsProcessingException(str(error)) from error
        if not feedback.isCanceled():
            self.load(target, source, context)
        return {"OUTPUT": str(target)}


class Upscale(Algorithm):
    """`pdenet upscale`."""

    def name(self):
        return "upscale"

    def displayName(self):  # noqa: N802
        return "Sharpen a hyperspectral image"

    def shortHelpString(self):  # noqa: N802
        return "Makes the pixels of a hyperspectral image 2, 4 or 8 times finer, with a learned network."

    def output(self):
        return QgsProcessingParameterRasterDestination("OUTPUT", "Finer image")

    def target(self, parameters, context):
        return self.parameterAsOutputLayer(parameters, "OUTPUT", context)

    def load(self, target, source, context):
        """QGIS loads the output itself, with the style beside it."""


class Uncertainty(Algorithm):
    """`pdenet uncertainty`."""

    def name(self):
        return "uncertainty"

    def displayName(self):  # noqa: N802
        return "Map how far to trust the sharpened image"

    def shortHelpString(self):  # noqa: N802
        return "Writes maps of the error to expect and intervals, for each band and merged, and the finer image."

    def output(self):
        return QgsProcessingParameterFolderDestination("OUTPUT", "Folder for the maps")

    def target(self, parameters, context):
        return self.parameterAsString(parameters, "OUTPUT", context)

    def load(self, target, source, context):
        """Let QGIS load the finer image and the merged maps, with the styles beside them."""
        for path in sorted(target.glob(f"{source.stem}_*")):
            if path.suffix.lower() in RASTERS and path.stem.endswith(("_merged", "_mean")):
                details = QgsProcessingContext.LayerDetails(path.stem, context.project(), path.stem)
                context.addLayerToLoadOnCompletion(str(path), details)


ALGORITHMS = (Upscale, Uncertainty)
