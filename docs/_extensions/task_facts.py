"""The facts of a task as Markdown tables, from its task file and the models that it names."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from model_docs import escape

from fleet_tools.config.distributions import Choice, NameChoice, OneOf, Uniform
from fleet_tools.config.randomization import RandomPlace, RandomPose
from fleet_tools.config.tasks import TaskConfig, load_task, task_names
from fleet_tools.envs.array_spec import ArraySpec, action_scale
from fleet_tools.envs.observation_modes import OBS_MODES, observables, observation_config
from fleet_tools.errors import UnknownNameError
from fleet_tools.experts.predicate_sentences import joint_units, sentences
from fleet_tools.registration import CUSTOM_ID, env_id
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import model_names
from fleet_tools.sim.splits import SPLITS, model_pairs

_AXES = {"translation_m": ("x", "y", "z", "m"), "rpy_deg": ("roll", "pitch", "yaw", "degrees")}
_COLORS = ("red", "green", "blue")
_RESISTANCE_UNITS = {"m": "N", "rad": "N m"}


def facts(name_or_path: str) -> str:
    """Returns all facts of a task.

    Args:
        name_or_path: Name of a task of the package, or path of a task file.

    Raises:
        UnknownNameError: There is no such task.
    """
    task = load_task(name_or_path)
    name = env_id(task.name) if name_or_path in task_names() else CUSTOM_ID
    parts = {
        f"`{name}`": overview(task),
        "Actions": actions(task),
        "Observations": observations(task),
        "Success": success(task),
        "Splits": splits(task),
        "Randomization": randomization(task),
    }
    return "\n\n".join(f"**{title}**\n\n{text}" for title, text in parts.items())


def tasks() -> str:
    """Returns the table of the package's tasks, each of which has a page with its name."""
    rows = []
    for task in map(load_task, task_names()):
        counts = (str(len(_models(kind, task))) for kind in ("tool", "object"))
        rows.append((f"[`{env_id(task.name)}`]({task.name}.md)", escape(task.description), *counts))
    return table(("environment", "what happens", "tools", "objects"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def overview(task: TaskConfig) -> str:
    """Returns what the task is, with which models, and how long an episode may last."""
    steps, rate_hz = task.max_episode_steps, task.control_rate_hz
    rows = [
        ("Tools", _names("tool", task)),
        ("Objects", _names("object", task)),
        ("Mount of the object", task.object_mount),
        ("Episode", f"at most {steps} steps of 1/{rate_hz:g} s, {steps / rate_hz:.3g} s"),
        ("Control rate", f"{rate_hz:g} Hz"),
    ]
    return f"{escape(task.description)}\n\n{table(('', ''), rows)}"


def _models(kind: Any, task: TaskConfig) -> list[str]:
    family = task.tool_family if kind == "tool" else task.object_family
    return model_names(kind, family, task.assets)


def _names(kind: Any, task: TaskConfig) -> str:
    names = _models(kind, task)
    return f"{len(names)}: {_code(names)}"


def actions(task: TaskConfig) -> str:
    """Returns the table of an action's entries."""
    bounds = task.step_bounds
    translation, rotation = f"{bounds.translation_m:g} m", f"{bounds.rotation_deg:g} deg"
    assert len(action_scale(bounds)) == 6
    rows = [
        ("0 to 2", "translation of the end effector, in its own frame", translation),
        ("3 to 5", "rotation vector of the end effector, in its own frame", rotation),
    ]
    head = ("entries", "motion in one control step", "motion when the entry is 1")
    return f"`Box(-1, 1, (6,), float32)`\n\n{table(head, rows)}"


_ROBOT = load_robot()


def observations(task: TaskConfig) -> str:
    """Returns the table of the entries of observations, by observation mode."""
    modes = {
        mode: observables(mode, task.keypoints, observation_config(task, mode), _ROBOT.num_joints)
        for mode in _modes(task)
    }
    common = set.intersection(*(set(entries) for entries in modes.values()))
    rows = [
        ("every" if shared else f"`{mode}`", *_entry_row(name, entry.spec))
        for mode, entries in modes.items()
        for name, entry in entries.items()
        for shared in [name in common]
        if not shared or mode == next(iter(modes))
    ]
    return table(("mode", "entry", "shape, dtype", "unit", "frame"), rows)


def _modes(task: TaskConfig) -> list[str]:
    return [mode for mode in OBS_MODES if task.cameras or OBS_MODES[mode].seen == "nothing"]


def _entry_row(name: str, spec: ArraySpec) -> tuple[str, str, str, str]:
    rows = f"; rows {_code(spec.entries)}" if spec.entries else ""
    frame = escape(spec.frame) if spec.frame else ""
    return f"`{name}`", f"`{spec.shape}` {spec.dtype}{rows}", escape(spec.unit), frame


def success(task: TaskConfig) -> str:
    """Returns the success predicates as a list of sentences."""
    steps, rate_hz = task.success_steps, task.control_rate_hz
    duration = f" for {steps} consecutive steps ({steps / rate_hz:g} s)" if steps > 1 else ""
    lines = [f"- {each};" for each in sentences(task)]
    return f"All of these hold{duration}:\n\n" + "\n".join(lines)[:-1] + "."


def splits(task: TaskConfig) -> str:
    """Returns the table of the models in each split that has any."""
    rows = []
    for split in SPLITS:
        try:
            pairs = model_pairs(task, split)
        except UnknownNameError:  # it is empty
            continue
        tools, objects = (sorted(set(names)) for names in zip(*pairs, strict=True))
        rows.append((f"`{split}`", str(len(pairs)), _code(tools), _code(objects)))
    return table(("split", "pairs", "tools", "objects"), rows)


def randomization(task: TaskConfig) -> str:
    """Returns the table of what is drawn for a scene of the default robot."""
    rows = [(f"`{group}`", *row) for group, *row in _drawn(task)]
    return table(("group", "quantity", "distribution"), rows)


def _drawn(task: TaskConfig) -> Iterator[tuple[str, str, str]]:
    """Yields group, quantity and distribution of all that is drawn."""
    drawn = _ROBOT.fill(task).randomization
    for group in type(drawn).model_fields:
        match getattr(drawn, group):
            case RandomPose() as pose:
                yield group, "", _pose_words(pose)
            case RandomPlace() as place:
                yield group, "distance (m)", _words(place.distance_m)
                yield group, "bearing (degrees)", _words(place.bearing_deg)
            case None:
                continue
            case tuple() as entries if len(entries) == len(_COLORS):
                yield group, ", ".join(_COLORS), _several(entries)
            case tuple() as entries:
                joints = f"joints 1 to {len(entries)}"
                yield group, f"{joints} (rad)", _several(entries)
            case dict() as named:
                for name, value in named.items():
                    if isinstance(value, RandomPose):
                        yield group, f"`{name}`", _pose_words(value)
                    else:
                        unit = _RESISTANCE_UNITS.get(joint_units(task).get(name, ""), "N or N m")
                        yield group, f"joint `{name}` ({unit})", _words(value)
            case value:
                yield group, "", _words(value)


def _pose_words(pose: RandomPose) -> str:
    words = []
    for field, (*axes, unit) in _AXES.items():
        values = getattr(pose, field)
        given = [
            f"{axis} {_words(value)}" for axis, value in zip(axes, values, strict=True) if value
        ]
        words += [f"{', '.join(given)} {unit}"] if given else []
    return "; ".join(words) or "none"


def _several(entries: Sequence[Any]) -> str:
    """Returns the words of several distributions, once if they are the same."""
    if len(set(map(str, entries))) == 1:
        return f"{_words(entries[0])} each"
    return "; ".join(map(_words, entries))


def _words(distribution: Any) -> str:
    match distribution:
        case Uniform(uniform=(low, high)):
            return f"{low:g} to {high:g}"
        case Choice(choice=options):
            return "one of " + ", ".join(f"{each:g}" for each in options)
        case OneOf(one_of=several):
            return " or ".join(f"{low:g} to {high:g}" for low, high in several)
        case NameChoice(choice=names):
            return f"one of {_code(names)}"
        case str():
            return f"`{distribution}`"
    return f"{distribution:g}"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
