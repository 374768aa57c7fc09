"""Labels a mesh by clicks in the browser: `fleet-tools label hammer.stl --family hammer`.

The page shows the mesh, the keypoints of its family and an example. It writes the model by the
importer, checks it, and shows the expert using it.
"""

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pydantic
from tyro.conf import Positional

from fleet_tools.assets.importing.argument_types import ModelName
from fleet_tools.assets.importing.settings import ScaleSettings
from fleet_tools.config.values import CountOrZero, Seed
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind
from fleet_tools.utils import cli

if TYPE_CHECKING:  # --help answers without numpy
    from fleet_tools.assets.labelling.subject import Subject


class LabelOptions(cli.Options):
    """Labels a mesh, or corrects the labels of a model, by clicks in the browser, until Ctrl-C.

    A mesh becomes a model of a family: the page asks for its keypoints, the hand, size and mass,
    and writes what `fleet-tools assets import` writes with the same coordinates. Of a model's
    folder, keypoints.yaml is corrected. Then the model is checked, and the expert tries it.

    Every action is kept in OUTPUT/tools/FAMILY/NAME.labels.yaml, from which the same command goes
    on. The page is for this machine alone.

    Exit codes:
    0: it was ended by Ctrl-C or SIGTERM.
    2: it cannot begin.
    """

    path: Positional[Path]
    """Mesh file (STL, OBJ, PLY, OFF, GLB or GLTF), or the folder of a model."""
    kind: Kind = "tool"
    """Whether a mesh becomes a tool or an object."""
    family: ModelName | None = None
    """Family of a mesh, such as hammer."""
    name: ModelName | None = None
    """Name of the model (default: that of the file)."""
    output: Path | None = None
    """Assets folder, where the model goes to tools/FAMILY/NAME or objects/FAMILY/NAME."""
    size: ScaleSettings = ScaleSettings()
    scenes: CountOrZero = 4
    """Number of scenes in which the expert tries the model."""
    seed: Seed = 0
    """Seed of the first scene."""
    port: Annotated[int, pydantic.Field(ge=0, lt=2**16)] = 8080
    """Port to listen on; 0 takes a free one."""

    @pydantic.model_validator(mode="after")
    def _fits_the_path(self) -> "LabelOptions":
        given = {"family": self.family, "output": self.output}
        if self.path.is_dir():
            given["name"] = self.name
            if superfluous := [f"--{key}" for key, value in given.items() if value is not None]:
                raise ValueError(f"a folder of a model says that itself: {', '.join(superfluous)}")
        elif lacking := [f"--{key}" for key, value in given.items() if value is None]:
            raise ValueError(f"a mesh needs {' and '.join(lacking)}")
        return self


def _label(options: LabelOptions) -> int:
    from fleet_tools.assets.labelling.page import LabelPage
    from fleet_tools.assets.labelling.session import Session

    session = Session(_subject(options))
    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    page = LabelPage(session, options.port, options.scenes, options.seed)
    try:
        identity = session.subject.identity
        summary = {
            "url": page.url,
            "folder": str(identity.folder),
            "labels": str(session.file),
            "missing": session.missing,
        }
        options.report(summary, lambda: f"Label {identity.name} at {page.url} (Ctrl-C ends)")
        sys.stdout.flush()
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        page.close()
    return cli.OK


def _subject(options: LabelOptions) -> "Subject":
    if options.path.is_dir():
        from fleet_tools.assets.labelling.folder_subject import FolderSubject

        return FolderSubject(options.path)
    from fleet_tools.assets.labelling.mesh_subject import MeshSubject

    if options.family is None or options.output is None:  # the options say so, too
        raise ConfigError("A mesh needs --family and --output.")
    return MeshSubject(
        options.path, options.kind, options.family, options.output, options.name, options.size
    )


PROGRAM = cli.Program("label", cli.Command(LabelOptions, _label))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
