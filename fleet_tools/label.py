"""Labels a mesh by clicks in the browser: `fleet-tools label hammer.stl --family hammer`.

The page shows the mesh, the keypoints of its family and an example. It writes the model by the
importer, checks it, and shows the expert using it.
"""

import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pydantic
from tyro.conf import Positional

from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import CountOrZero, Seed
from fleet_tools.errors import ConfigError
from fleet_tools.sim.catalog import Kind
from fleet_tools.studio.importing.settings import KeypointNamesArgument, ModelName, ScaleSettings
from fleet_tools.utils import cli

if TYPE_CHECKING:  # --help answers without numpy
    from fleet_tools.studio.labelling.subjects import Subject


class LabelOptions(cli.Options):
    """Labels a mesh, or corrects the labels of a model, by clicks in the browser, until Ctrl-C.

    A mesh becomes a model of a family: the page asks for its keypoints, the hand, size and mass,
    and writes what `fleet-tools assets import` writes with the same coordinates. Of a model's
    folder, keypoints.yaml is corrected. Then the model is checked, and the expert tries it.

    A model of a task of your own is labelled with --task FILE, which gives family, keypoints,
    examples and the folder of its models, and is where the expert tries it. A family that no task
    has yet is given by --family NEW --keypoint-names NAME,NAME.

    Every action is kept in OUTPUT/tools/FAMILY/NAME.labels.yaml, from which the same command goes
    on. The page is for this machine and one tab of its browser alone; its address, which is another
    one in every run, is printed.

    Exit codes:
    0: it was ended by Ctrl-C or SIGTERM.
    2: it cannot begin.
    """

    path: Positional[Path]
    """Mesh file (STL, OBJ, PLY, OFF, DAE, GLB or GLTF), or the folder of a model."""
    kind: Kind = "tool"
    """Whether a mesh becomes a tool or an object."""
    task: str | None = None
    """Task to which the model belongs, by name or by the path of its YAML file."""
    family: ModelName | None = None
    """Family of a mesh, such as hammer (default: the task's)."""
    keypoint_names: KeypointNamesArgument = ()
    """Keypoints of a family of your own, beside the keypoints of the package's tasks."""
    name: ModelName | None = None
    """Name of the model (default: the file's)."""
    output: Path | None = None
    """Assets folder, where the model goes to tools/FAMILY/NAME or objects/FAMILY/NAME (default:
    `assets` of the task)."""
    size: ScaleSettings = ScaleSettings()
    scenes: CountOrZero = 4
    """Number of scenes in which the expert tries the model."""
    seed: Seed = 0
    """Seed of the first scene."""
    port: Annotated[int, pydantic.Field(ge=0, lt=2**16)] = 8080
    """Port to listen on; 0 takes a free one."""

    @pydantic.model_validator(mode="after")
    def _fits_the_path(self) -> "LabelOptions":
        known = {"--family": self.family, "--keypoint-names": self.keypoint_names}
        placed = {"--output": self.output}
        if self.path.is_dir():
            _refuse(
                known | placed | {"--name": self.name}, "the folder of a model has these already"
            )
        elif self.task is not None:
            _refuse(known, "the task has these already")
        elif lacking := [key for key, value in (known | placed).items() if value is None]:
            raise ValueError(f"a mesh needs {' and '.join(lacking)}, or --task")
        return self


def _refuse(options: Mapping[str, object], reason: str) -> None:
    if superfluous := [key for key, value in options.items() if value]:
        raise ValueError(f"{reason}: {', '.join(superfluous)}")


def _label(options: LabelOptions) -> int:
    from fleet_tools.studio.labelling.page import LabelPage
    from fleet_tools.studio.labelling.session import LabellingSession

    session = LabellingSession(_subject(options))
    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    page = LabelPage(session, options.port, options.scenes, options.seed, options.task)
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
    task = None if options.task is None else load_task(options.task)
    if options.path.is_dir():
        from fleet_tools.studio.checking.expert_trials import tasks_of
        from fleet_tools.studio.labelling.subjects import FolderSubject

        subject = FolderSubject(options.path)
        tasks_of(subject.model, options.task)  # refuses a task of other families
        return subject
    from fleet_tools.studio.labelling.subjects import MeshSubject

    family, output, keypoints = options.family, options.output, options.keypoint_names
    if task is not None:
        family = task.tool_family if options.kind == "tool" else task.object_family
        keypoints = task.keypoints.tool if options.kind == "tool" else task.keypoints.object
        if output is None and task.assets is not None:
            output = Path(task.assets)
    if family is None or output is None:
        raise ConfigError(
            "Give --output for a mesh: the task has no `assets` folder in which to store its model."
        )
    return MeshSubject(
        options.path, options.kind, family, output, options.name, options.size, keypoints
    )


PROGRAM = cli.Program("label", cli.Command(LabelOptions, _label))
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
