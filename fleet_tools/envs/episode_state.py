"""State of one episode: progress, verdict, info."""

from dataclasses import dataclass, replace
from typing import Any

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs import rewards
from fleet_tools.envs.contact_metrics import UNTOUCHED, ContactMetrics, is_gentle
from fleet_tools.envs.outcomes import OBJECT_LOST, RUNNING, SUCCESS, TIME_LIMIT
from fleet_tools.envs.success import Verdict, conjunction, judge_each
from fleet_tools.perception.measurement import Capture, Measurement
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world_state import Snapshot, WorldState


@dataclass(frozen=True, eq=False)
class EnvState:
    """An environment during an episode; `set_state` continues from it bit for bit.

    Attributes:
        scene: Scene of the episode.
        snapshot: State of the simulation.
        outcome: Outcome so far.
        steps_held: Number of consecutive steps for which the success predicates have held.
        success_once: Whether they have held after any step.
        shown: What delayed cameras show; None where they show the present.
        contact_metrics: How the task was handled so far.
        initial: State in which the present object's turn began; None where it is the start.
    """

    scene: Scene
    snapshot: Snapshot
    outcome: str
    steps_held: int
    success_once: bool
    shown: Capture | None = None
    contact_metrics: ContactMetrics = UNTOUCHED
    initial: WorldState | None = None


@dataclass(frozen=True, eq=False)
class EpisodeState:
    """State of an episode after a step.

    Attributes:
        task: The task.
        scene: The scene.
        initial: State at the start of the episode, or in which the present object's turn began.
        measurement: The present measurement.
        objects_done: Number of objects of the scene that are done.
        outcome, steps_held, success_once, contact_metrics: See `EnvState`.
    """

    task: TaskConfig
    scene: Scene
    initial: WorldState
    measurement: Measurement
    outcome: str = RUNNING
    steps_held: int = 0
    success_once: bool = False
    contact_metrics: ContactMetrics = UNTOUCHED
    objects_done: int = 0

    @property
    def state(self) -> WorldState:
        """The present state."""
        return self.measurement.state

    @property
    def is_last_object(self) -> bool:
        """Whether the episode is a success once the present object is done."""
        return self.objects_done == len(self.scene.next_objects)

    @property
    def object_is_done(self) -> bool:
        """Whether the next object's turn begins."""
        return self.outcome == RUNNING and self.steps_held >= self.task.success_steps

    @property
    def max_steps(self) -> int:
        """Time limit in steps: the task's for each object."""
        return self.task.max_episode_steps * len(self.scene.objects)

    def lost_links(self) -> list[str]:
        """Returns the links of the object whose centre of mass is outside the workspace."""
        workspace = self.task.workspace
        return [name for name, (p, _) in self.state.links.items() if not workspace.contains(p)]

    def verdicts(self) -> dict[str, Verdict]:
        """Returns the verdict of each success predicate; none holds once the object is lost."""
        verdicts = judge_each(self.task.success, self.initial, self.state)
        return dict.fromkeys(verdicts, Verdict(False, 0.0)) if self.lost_links() else verdicts

    def after(
        self, measurement: Measurement, is_last: bool
    ) -> "tuple[EpisodeState, dict[str, Verdict]]":
        """Returns the episode after another step, and its verdicts.

        Args:
            measurement: What was measured after the step.
            is_last: Whether the time is over.
        """
        now = replace(self, measurement=measurement)
        verdicts = now.verdicts()
        holds = conjunction(verdicts.values()).holds
        steps_held = self.steps_held + 1 if holds else 0
        outcome = RUNNING
        if now.lost_links():
            outcome = OBJECT_LOST
        elif steps_held >= self.task.success_steps and self.is_last_object:
            outcome = SUCCESS
        elif is_last:
            outcome = TIME_LIMIT
        now = replace(
            now,
            outcome=outcome,
            steps_held=steps_held,
            success_once=self.success_once or (holds and self.is_last_object),
            contact_metrics=self.contact_metrics.after(self.state, measurement.state),
        )
        return now, verdicts

    def with_next_object(self, measurement: Measurement) -> "EpisodeState":
        """Returns the episode at the same moment, at which the next object's turn begins.

        Args:
            measurement: What is measured of the same moment with this object in use.
        """
        return replace(
            self,
            measurement=measurement,
            initial=measurement.state,
            objects_done=self.objects_done + 1,
            steps_held=0,
        )

    def reward(self, before: "EpisodeState", dense: bool) -> float:
        """Returns the reward of the step that led here, see `fleet_tools.envs.rewards`."""
        if not dense:
            return rewards.sparse(self.outcome)
        return rewards.dense(self.task, self.outcome, self.initial, before.state, self.state)

    def info(self, verdicts: dict[str, Verdict], cameras: dict[str, Any]) -> dict[str, Any]:
        """Returns the `info` of the present, see `ToolUseEnv`.

        Args:
            verdicts: The verdicts by predicate.
            cameras: Intrinsics and poses of the cameras; empty without images.
        """
        verdict = conjunction(verdicts.values())
        objects = len(self.scene.objects)
        if objects > 1:
            done = (self.objects_done + verdict.progress) / objects
            verdict = Verdict(verdict.holds and self.is_last_object, done)
        gentle = is_gentle(self.task.gentle, verdict.holds, self.contact_metrics)
        return {
            "outcome": self.outcome,
            "success": verdict.holds,
            "is_success": verdict.holds,  # as Stable-Baselines3 calls it
            "success_once": self.success_once,
            "progress": verdict.progress,
            "verdicts": {name: dict(vars(verdict)) for name, verdict in verdicts.items()},
            "forces": self.state.forces(),
            "limits": self.state.limits(),
            "contact_metrics": self.contact_metrics.numbers()
            | ({} if gentle is None else {"gentle": gentle}),
            **({"cameras": cameras} if cameras else {}),
            **({"objects_done": self.objects_done} if objects > 1 else {}),
        }
