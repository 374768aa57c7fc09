"""Learning curves: measured in scenes without learning, stored as JSON, and drawn."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from fleet_tools.config.values import CountOrZero, Value
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.utils.statistics import wilson_interval

# Matplotlib and Drake are imported where they are needed.
if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.policies.policy import Policy

_COLORS = {"expert": "tab:green", "zero": "tab:gray", "random": "tab:red"}


class MeasuredSuccess(Value):
    """A policy's episodes in given scenes.

    Attributes:
        returns: Sum of the rewards of each episode.
        successes: Number of episodes that ended as a success.
    """

    returns: tuple[float, ...]
    successes: CountOrZero

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return fmean(self.returns)

    @property
    def success_rate(self) -> float:
        """Share of successes."""
        return self.successes / len(self.returns)

    def __str__(self) -> str:
        """Returns mean return and successes for people."""
        low, high = wilson_interval(self.successes, len(self.returns))
        return (
            f"return {self.mean_return:.2f}, success in {self.successes} of {len(self.returns)} "
            f"scenes (95% interval {low:.1%} to {high:.1%})"
        )


class CurvePoint(Value):
    """An agent after some steps of learning.

    Attributes:
        steps: Number of steps of the environment from which it has learned.
        processor_s: Processor time of learning and of evaluations so far, s.
        measured: Its episodes, with its most likely actions.
    """

    steps: CountOrZero
    processor_s: float
    measured: MeasuredSuccess


class LearningCurve(Value):
    """An agent as it learns, and policies with which it is to be compared, in the same scenes.

    Attributes:
        task: Name of the task.
        seed: Seed of the agent and of the scenes in which it learned.
        references: Measurements of other policies, by name.
        points: The agent, from the start on.
    """

    task: str
    seed: CountOrZero
    references: dict[str, MeasuredSuccess]
    points: tuple[CurvePoint, ...] = ()

    def __str__(self) -> str:
        """Returns the last point and the references as lines for people."""
        last = self.points[-1]
        agent = f"agent after {last.steps} steps ({last.processor_s:.0f} s): {last.measured}"
        others = (f"{name}: {measured}" for name, measured in self.references.items())
        return "\n".join([self.task, agent, *others])


def measure(env: "ToolUseEnv", policy: "Policy", seeds: Sequence[int]) -> MeasuredSuccess:
    """Runs a policy in the scenes of some seeds."""
    from fleet_tools.envs.outcomes import SUCCESS
    from fleet_tools.rollouts.rollout import rollout

    episodes = [rollout(env, policy, seed=seed) for seed in seeds]
    return MeasuredSuccess(
        returns=tuple(float(episode.rewards.sum()) for episode in episodes),
        successes=sum(episode.outcome == SUCCESS for episode in episodes),
    )


def draw(curves: Sequence[LearningCurve], path: Path) -> None:
    """Draws returns (mean, and half of the scenes) and success rates over steps.

    Args:
        curves: The curves; each has a column.
        path: File of the image, PNG.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context("default"), atomic_write(path) as aside:
        figure = Figure((0.5 + 3.0 * len(curves), 5.0), layout="constrained")
        panels = figure.subplots(2, len(curves), sharex="col", sharey="row", squeeze=False)
        for curve, (above, below) in zip(curves, panels.T, strict=True):
            _draw_curve(curve, above, below)
        panels[0, 0].set_ylabel("return")
        panels[1, 0].set_ylabel("success rate")
        panels[0, 0].legend(fontsize="small")
        figure.savefig(aside, dpi=120, format="png")


def _draw_curve(curve: LearningCurve, returns: "Axes", success: "Axes") -> None:
    import numpy as np

    steps = [point.steps for point in curve.points]
    measured = [point.measured for point in curve.points]
    low, high = np.percentile([each.returns for each in measured], (25, 75), axis=1)
    returns.fill_between(steps, low, high, alpha=0.2)
    returns.plot(steps, [each.mean_return for each in measured], label="agent")
    success.plot(steps, [each.success_rate for each in measured])
    for name, reference in curve.references.items():
        returns.axhline(reference.mean_return, color=_COLORS[name], linestyle="--", label=name)
        success.axhline(reference.success_rate, color=_COLORS[name], linestyle="--")
    returns.set_title(curve.task)
    success.set_xlabel("steps of the environment")
    success.set_ylim(-0.03, 1.03)
    for axes in (returns, success):
        axes.grid(alpha=0.3)
