"""Measures what policies make of images: `python benchmarks/images.py --policies a.safetensors`.

    python benchmarks/images.py --policies runs/varied/best.safetensors --appearances varied plain
    python benchmarks/images.py --policies runs/varied/best.safetensors --images blank elsewhere

A policy that solves scenes without their images does not use them, whatever its success.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic
from console import print_now, table_head, table_row

from fleet_tools.config.options import TaskOptions
from fleet_tools.config.values import Count
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    import numpy as np

    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.evaluation.protocol import Trial
    from fleet_tools.policies.policy import Policy
    from fleet_tools.sim.scene import Scene

Images = Literal["seen", "blank", "elsewhere"]
Appearance = Literal["varied", "plain"]

APPEARANCE = ("tool_tint", "object_tint", "table_tint", "table_texture")
"""Groups of randomization that only images show."""


class ImagesOptions(cli.Options):
    """Measures the success of policies with their images and without, in the protocol's scenes.

    Prints a row for each policy, kind of images and appearance of scenes: successes by split.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    task: TaskOptions
    policies: Annotated[tuple[Path, ...], pydantic.Field(min_length=1)]
    """Checkpoints."""
    images: tuple[Images, ...] = ("seen",)
    """What takes the place of images: nothing (seen), black (blank), or the first images of the
    next scene, throughout the episode (elsewhere)."""
    appearances: tuple[Appearance, ...] = ("varied",)
    """Whether colours and textures vary as in the task file and the protocol, or are nominal
    (plain); all else is the same."""
    scenes: Count | None = None
    """Number of first scenes of each split (default: all)."""


@dataclass(frozen=True)
class Replaced:
    """A policy to which some entries of observations are shown as something else.

    Attributes:
        policy: The policy.
        entries: What it is shown instead, by name.
    """

    policy: "Policy"
    entries: "Mapping[str, np.ndarray]"

    def reset(self) -> None:
        """Begins an episode."""
        self.policy.reset()

    def act(self, observation: "Mapping[str, np.ndarray]") -> "np.ndarray":
        """Returns the policy's action."""
        return self.policy.act({**observation, **self.entries})


def _measure_all(options: ImagesOptions) -> int:
    from fleet_tools.evaluation.config import PROTOCOL
    from fleet_tools.evaluation.policy_provenance import default_name
    from fleet_tools.evaluation.protocol_file import load_protocol, with_task
    from fleet_tools.policies.sources import find_policy

    protocol, task = with_task(load_protocol(PROTOCOL), options.task.name_or_path())
    trials = protocol.trials(task, scenes=options.scenes)
    columns = ("policy", "images", "colours and textures", *protocol.splits, "all", "95% interval")
    print_now(options, table_head(columns))
    rows = []
    for path in options.policies:
        source = find_policy(str(path))
        env = protocol.make_env(task, trusted=True, **source.env_kwargs)  # the user named it
        policy = source.make(env)
        for images in options.images:
            for appearance in options.appearances:
                solved = _solved(env, policy, trials, images, appearance)
                rows.append(_row(default_name(source), images, appearance, trials, solved))
                print_now(options, _as_text(rows[-1]))
        env.close()
    if options.json_output:
        options.report({"protocol": protocol.title, "rows": rows}, str)
    return cli.OK


def _solved(
    env: "ToolUseEnv",
    policy: "Policy",
    trials: "list[Trial]",
    images: Images,
    appearance: Appearance,
) -> list[bool]:
    """Runs the trials, and returns which of them succeeded."""
    from fleet_tools.envs.outcomes import SUCCESS
    from fleet_tools.rollouts.rollout import rollout

    scenes = [_scene(env, trial, appearance) for trial in trials]
    solved = []
    for scene, other in zip(scenes, scenes[1:] + scenes[:1], strict=True):
        shown = Replaced(policy, _replacement(env, images, other))
        solved.append(rollout(env, shown, scene=scene).outcome == SUCCESS)
    return solved


def _scene(env: "ToolUseEnv", trial: "Trial", appearance: Appearance) -> "Scene":
    from fleet_tools.sim.scene import sample_scene

    switch = {group: appearance == "varied" for group in APPEARANCE}
    return sample_scene(env.task, trial.seed, split=trial.split, randomization=switch)


def _replacement(env: "ToolUseEnv", images: Images, other: "Scene") -> "dict[str, np.ndarray]":
    """Returns what takes the place of the images of an episode, by name."""
    import numpy as np

    if images == "seen":
        return {}
    observation, _ = env.reset(options={"scene": other})
    kept = {name: image for name, image in observation.items() if env.features[name].is_image}
    return (
        {name: np.zeros_like(image) for name, image in kept.items()} if images == "blank" else kept
    )


def _row(
    policy: str, images: Images, appearance: Appearance, trials: "list[Trial]", solved: list[bool]
) -> dict[str, Any]:
    from fleet_tools.utils.statistics import wilson_interval

    by_split: dict[str, list[bool]] = {}
    for trial, success in zip(trials, solved, strict=True):
        by_split.setdefault(trial.split, []).append(success)
    return {
        "policy": policy,
        "images": images,
        "appearance": appearance,
        "successes": {split: sum(successes) for split, successes in by_split.items()},
        "scenes": {split: len(successes) for split, successes in by_split.items()},
        "interval_95": wilson_interval(sum(solved), len(solved)),
        "failed_seeds": [t.seed for t, success in zip(trials, solved, strict=True) if not success],
    }


def _as_text(row: Mapping[str, Any]) -> str:
    low, high = row["interval_95"]
    successes, scenes = row["successes"], row["scenes"]
    cells = [
        row["policy"],
        row["images"],
        row["appearance"],
        *(f"{successes[split]} of {scenes[split]}" for split in scenes),
        f"{sum(successes.values())} of {sum(scenes.values())}",
        f"{low:.1%} to {high:.1%}",
    ]
    return table_row(cells)


PROGRAM = cli.Program(
    "images.py", cli.Command(ImagesOptions, _measure_all), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
