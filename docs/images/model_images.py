"""Makes the pictures of tools and objects, from their models: `python docs/images/model_images.py`.

Each task has one, `TASK_models.webp`: its tools, and below them its objects. Names of tasks after
the command make theirs alone.
"""

import sys
from collections.abc import Sequence
from math import pi
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph
from pydrake.systems.framework import DiagramBuilder

from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.perception.camera_view import Pinhole
from fleet_tools.perception.display import look_at
from fleet_tools.perception.rendering import BACKGROUND_COLOR, add_renderer, render_rgb
from fleet_tools.sim.catalog import Kind, Model, find_model, model_names

# Pages show the pictures at half of these sizes, which are in pixels.
COLUMNS, COLUMN_WIDTH = 4, 368
LARGEST = (328, 200)
"""Width and height within which every model fits."""
MARGIN, FONT_SIZE = 28, 36
TEXT_COLOR = (40, 44, 52)
BACKGROUND = tuple(round(255 * c) for c in BACKGROUND_COLOR)

EYE = (0.5, -1.5, 1.4)
"""Position of the camera relative to a model's middle, m: far away, so that sizes compare."""
VIEWS = {"tool": ((0.05, 0.0, 0.0), 15), "object": ((0.0, 0.0, 0.04), 7)}
"""Middle of the models of a kind, m, and the camera's field of view, degrees."""
RENDERED_SIZE = (2400, 1800)

X_WT = RigidTransform(RotationMatrix.MakeXRotation(pi))
"""Pose of a tool: its z axis points from the hand to the work, downwards."""


def main(names: Sequence[str], folder: Path = Path(__file__).parent) -> None:
    """Writes the pictures.

    Args:
        names: Names of the tasks; all without any.
        folder: Their folder.
    """
    for name in names or task_names():
        task = load_task(name)
        image = np.concatenate([grid(task, "tool"), grid(task, "object")])
        Image.fromarray(image).save(folder / f"{name}_models.webp", quality=80, method=6)


def grid(task: TaskConfig, kind: Kind) -> np.ndarray:
    """Returns an image of the tools or objects of a task, to one scale, with their names.

    An asterisk follows the names of those that are held out from training.
    """
    family = task.tool_family if kind == "tool" else task.object_family
    held_out = task.held_out.tools if kind == "tool" else task.held_out.objects
    names = model_names(kind, family)
    print(f"{kind}s of {task.name}: {', '.join(names)}")
    images = [cropped(render(find_model(kind, family, name))) for name in names]
    sizes = np.array([image.size for image in images])
    sizes = np.round(sizes * np.min(np.divide(LARGEST, sizes.max(axis=0)))).astype(int)
    height = int(sizes[:, 1].max())
    cells = []
    for name, image, size in zip(names, images, sizes, strict=True):
        cell = Image.new("RGB", (COLUMN_WIDTH, height + FONT_SIZE + 2 * MARGIN), BACKGROUND)
        middle = np.array([COLUMN_WIDTH // 2, MARGIN + height // 2])
        cell.paste(image.resize(size, Image.Resampling.LANCZOS), tuple(middle - size // 2))
        label = f"{name} *" if name in held_out else name
        below = COLUMN_WIDTH // 2, cell.height - MARGIN // 2
        ImageDraw.Draw(cell).text(below, label, TEXT_COLOR, anchor="md", font_size=FONT_SIZE)
        cells.append(np.asarray(cell))
    cells += [np.full_like(cells[0], BACKGROUND)] * (-len(cells) % COLUMNS)
    rows = [np.concatenate(cells[k : k + COLUMNS], axis=1) for k in range(0, len(cells), COLUMNS)]
    return np.concatenate(rows)


def render(model: Model) -> np.ndarray:
    """Returns an image of a model alone, (height, width, 3) uint8."""
    builder = DiagramBuilder()
    plant, scene_graph = AddMultibodyPlantSceneGraph(builder, time_step=0.0)
    (instance,) = Parser(plant).AddModels(model.file)
    if model.labels.kind == "tool":
        (body,) = map(plant.get_body, plant.GetBodyIndices(instance))
        plant.SetDefaultFloatingBaseBodyPose(body, X_WT)
    plant.Finalize()
    add_renderer(scene_graph)
    context = builder.Build().CreateDefaultContext()
    query = scene_graph.get_query_output_port().Eval(scene_graph.GetMyContextFromRoot(context))
    middle, field_of_view = VIEWS[model.labels.kind]
    pinhole = Pinhole.from_field_of_view(*RENDERED_SIZE, field_of_view)
    return render_rgb(query, pinhole, look_at(tuple(np.add(middle, EYE)), middle))


def cropped(image: np.ndarray) -> Image.Image:
    """Returns the part of an image with all that is not background."""
    shown = Image.fromarray(np.any(image != image[0, 0], axis=2))
    box = shown.getbbox()
    return Image.fromarray(image).crop(box)


if __name__ == "__main__":
    main(sys.argv[1:])
