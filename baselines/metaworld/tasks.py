"""Meta-World's tasks and scenes: sets of tasks, and their stored forms."""

from importlib.metadata import version
from typing import Any, Literal

import yaml

from fleet_tools.config.values import Number, Seed, Value
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import require_name
from fleet_tools.registration import ARENAS
from fleet_tools.storage.provenance import TaskFile
from fleet_tools.utils.libraries import require

META_WORLD = ARENAS["MetaWorld"]
(META_WORLD_ID,) = META_WORLD.ids
"""Id of all tasks: `gymnasium.make(META_WORLD_ID, task="reach-v3")`."""

SETS = ("mt10", "mt50")
"""Meta-World's sets of tasks: 10, and all 50."""

REWARD = "v2"
"""Meta-World's version of the rewards."""

PURPOSE = "make its environments"

MAX_STEPS = 500
"""Number of steps of an episode, the limit of the library's environments."""


class MetaWorldTask(Value):
    """Stored form of a task: all inputs of its episodes, besides packages.

    Attributes:
        task: Name of the task.
        metaworld: Version of Meta-World, which defines it.
        reward: Meta-World's version of the reward; success is judged separately.
        max_episode_steps: Number of steps after which an episode ends.
    """

    task: str
    metaworld: str
    reward: str
    max_episode_steps: int = MAX_STEPS


class MetaWorldScene(Value):
    """The start of one episode, determined by its seed.

    Attributes:
        arena: Name of the arena, see `fleet_tools.registration`.
        task: Name of the task.
        seed: Seed that drew it.
        random_vector: Random numbers: positions of objects and of the goal, m, and angles, rad.
    """

    arena: Literal["MetaWorld"] = "MetaWorld"
    task: str
    seed: Seed
    random_vector: tuple[Number, ...]

    @property
    def tool(self) -> None:
        """None: the robot's gripper is the tool."""

    @property
    def object(self) -> None:
        """None: a task has one kind of objects."""


def task_set(name: str) -> tuple[str, ...]:
    """Returns the names of the tasks of a set, in Meta-World's order.

    Args:
        name: One of `SETS`, or names of tasks with commas between them.

    Raises:
        UnknownNameError: There is no such set or task.
        MissingLibraryError: Meta-World is not installed.
    """
    require("metaworld", PURPOSE)
    from metaworld.env_dict import MT10_V3, MT50_V3

    if name in SETS:
        return tuple({"mt10": MT10_V3, "mt50": MT50_V3}[name])
    names = tuple(name.split(","))
    for each in names:
        require_name("task or set of Meta-World", each, MT50_V3, f"Sets: {', '.join(SETS)}.")
    return names


def env_spec(task: str, tasks: str, **others: Any) -> EnvSpec:
    """Returns the specification of the environment of a task, for a policy of a set.

    Args:
        task: Name of the task.
        tasks: The set.
        others: Other keyword arguments of `env.MetaWorldEnv`.
    """
    return EnvSpec(id=META_WORLD_ID, kwargs={"task": task, "tasks": tasks, **others})


def read_task(name: str) -> TaskFile:
    """Returns the stored form of a task, see `MetaWorldTask`.

    Raises:
        UnknownNameError: There is no such task.
        MissingLibraryError: Meta-World is not installed.
    """
    require_name("task of Meta-World", name, task_set("mt50"))
    task = MetaWorldTask(task=name, metaworld=version("metaworld"), reward=REWARD)
    text = yaml.safe_dump(task.model_dump(), sort_keys=False)
    return TaskFile(name=name, content_digest=task.digest(), text=text, folder=None)
