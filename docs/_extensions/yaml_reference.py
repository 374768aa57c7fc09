"""The reference of YAML files as Markdown, from the models that read them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from model_docs import (
    attribute_docs,
    default_words,
    description,
    escape,
    field_types,
    type_words,
    unit,
)

from fleet_tools.baselines.experiments.form import Experiment
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.config import distributions, expert, predicates
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.config.values import Value
from fleet_tools.evaluation import changed_ranges
from fleet_tools.evaluation.levels import LevelsFile
from fleet_tools.robot.arm import Arm
from fleet_tools.sim.catalog import Keypoints


@dataclass(frozen=True)
class File:
    """A kind of file.

    Attributes:
        title: Heading of its section.
        model: Model of its content.
        text: What it is, as Markdown.
    """

    title: str
    model: type[Value]
    text: str


FILES = (
    File(
        "Task files",
        TaskConfig,
        "`task_configs/hammer.yaml`, or `task=` of an environment. Beside these keys, `extends` "
        "names [a task that the file changes](../tutorials/own_task.md#a-variant-of-a-task).",
    ),
    File("Robots", Arm, "`task_configs/robots/panda.yaml`, or `robot=` of an environment."),
    File("keypoints.yaml", Keypoints, "The labels of a tool or an object, in its model's folder."),
    File(
        "Protocols", LevelsFile, "`task_configs/protocols/v1.yaml`, by which policies are scored."
    ),
    File("Fleets", FleetConfig, "What `fleet-tools fleet` reads, as `examples/fleet/hammer.yaml`."),
    File(
        "Experiments",
        Experiment,
        "What `fleet-tools experiment` reads, as `examples/fleet/sweep.yaml`. Beside these keys, "
        "`extends` names a file of which the experiment takes what it does not say itself.",
    ),
)


@dataclass(frozen=True)
class Choice:
    """Several models, one of which stands at a place.

    Attributes:
        title: Its name.
        annotations: Types that mean the choice.
        text: What it is, as Markdown.
    """

    title: str
    annotations: tuple[Any, ...]
    text: str

    @property
    def models(self) -> list[type[Value]]:
        """The models."""
        return list(_models_in(self.annotations[0]))


CHOICES = (
    Choice(
        "Distribution",
        (distributions.Distribution,),
        "A number, or one of the following. Every number that can be drawn is in its "
        "[range](../environments/scenes.md#ranges).",
    ),
    Choice(
        "NameDistribution",
        (distributions.NameDistribution,),
        "A name, or a choice among names.",
    ),
    Choice(
        "Change",
        (changed_ranges.Change,),
        "`same` as in the task; or `{below: [near, far], above: [near, far]}`, distances from the "
        "task's range in units of its width; or a [distribution](#yaml-distribution) that shares "
        "no number with the range; or a list or a mapping of them, as the task has it.",
    ),
    Choice("Predicate", (predicates.Predicate,), "The key `type` says which."),
    Choice("KeypointTerm", (expert.KeypointTerm,), "The key `type` says which."),
    Choice("KeyframeMotion", (expert.KeyframeMotion,), "The key `type` says which."),
)


_NAMES = {"PointNetConfig": "PointNet", "ResNet18Config": "ResNet-18"}
"""Names that are no words in a row."""


def reference(files: Sequence[File] = FILES) -> str:
    """Returns the Markdown of all files; a part that several have is described once."""
    described: set[str] = set()
    return "\n\n".join(_file_section(file, described) for file in files)


def _file_section(file: File, described: set[str]) -> str:
    sections = [_heading(2, file.title, file.model), file.text, model_text(file.model)]
    described.add(file.model.__name__)
    waiting = list(_parts_of(file.model))
    while waiting:
        part = waiting.pop(0)
        name = part.title if isinstance(part, Choice) else part.__name__
        if name in described:
            continue
        described.add(name)
        if isinstance(part, Choice):
            sections += [_heading(3, _words(name), name), part.text]
            for model in part.models:
                described.add(model.__name__)
                sections += [_heading(4, _tag(model) or _words(model.__name__), model)]
                sections += [model_text(model)]
            inner = [each for model in part.models for each in _parts_of(model)]
        else:
            sections += [_heading(3, _words(name), part), model_text(part)]
            inner = list(_parts_of(part))
        waiting = inner + waiting
    return "\n\n".join(sections)


def model_text(model: type[Value]) -> str:
    """Returns a model's description and the table of its keys."""
    types, docs = field_types(model), attribute_docs(model)
    rows = [
        _row(name, field, types[name], docs.get(name, ""))
        for name, field in model.model_fields.items()
    ]
    head = "| key | type | default | |\n|---|---|---|---|"
    return f"{escape(description(model))}\n\n{head}\n" + "\n".join(rows)


def _row(name: str, field: Any, annotation: Any, text: str) -> str:
    words = type_words(annotation, _named)
    words = f"{words} ({unit(name)})" if unit(name) else words
    default = default_words(field) or "*required*"
    return f"| `{name}` | {words} | {default} | {escape(text)} |"


def _named(annotation: Any) -> str | None:
    """Returns a link to the section of a type that has one."""
    for choice in CHOICES:
        if annotation in choice.annotations:
            return f"[{_words(choice.title)}](#{anchor(choice.title)})"
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return f"[{_words(annotation.__name__)}](#{anchor(annotation.__name__)})"
    return None


def _parts_of(model: type[Value]) -> Iterator[Choice | type[Value]]:
    """Yields the choices and models that the types of a model's fields name, in order."""
    for annotation in field_types(model).values():
        yield from _parts_in(annotation)


def _parts_in(annotation: Any) -> Iterator[Choice | type[Value]]:
    for choice in CHOICES:
        if annotation in choice.annotations:
            yield choice
            return
    if isinstance(annotation, type) and issubclass(annotation, Value):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts_in(inner)


def _models_in(annotation: Any) -> Iterator[type[Value]]:
    if isinstance(annotation, type) and issubclass(annotation, Value):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _tag(model: type[Value]) -> str | None:
    field = model.model_fields.get("type")
    values = get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()
    return f"{values[0]}" if len(values) == 1 else None


def _heading(level: int, text: str, target: type[Value] | str) -> str:
    name = target if isinstance(target, str) else target.__name__
    return f"({anchor(name)})=\n{'#' * level} {text}"


def anchor(name: str) -> str:
    """Returns the target of a model's section, such as "yaml-random-pose" of RandomPose."""
    return "yaml-" + _words(name).lower().replace(" ", "-")


def _words(name: str) -> str:
    """Returns a class's name as words: "RandomPose" is "Random pose"."""
    if name in _NAMES:
        return _NAMES[name]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.removesuffix("Config")).split()
    return " ".join([words[0], *(word if word.isupper() else word.lower() for word in words[1:])])
