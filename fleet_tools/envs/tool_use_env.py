"""The Gymnasium environment of every task."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.config.tasks import load_task
from fleet_tools.config.values import parse
from fleet_tools.envs import rewards
from fleet_tools.envs.actions import action_scale, action_space, checked_action
from fleet_tools.envs.observations import Moment, layout, observation_space, observe
from fleet_tools.envs.outcomes import RUNNING, SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.envs.success import Verdict, judge, judge_all
from fleet_tools.errors import (
    ConfigError,
    EpisodeOverError,
    SimulationError,
    UnknownNameError,
)
from fleet_tools.perception.observation_config import CHANNELS, choose_vision
from fleet_tools.perception.observer import Sight
from fleet_tools.perception.opengl import require_gl
from fleet_tools.perception.third_person_view import open_meshcat
from fleet_tools.sim.catalog import Model, find_model
from fleet_tools.sim.scene import RandomizationSwitch, Scene, check_randomization, sample_scene
from fleet_tools.sim.simulation import CONTROL_RATE, Simulation, Snapshot
from fleet_tools.sim.splits import model_pairs
from fleet_tools.sim.world import build_world
from fleet_tools.sim.world_state import WorldState

REWARDS = ("sparse", "dense")


@dataclass(frozen=True, eq=False)
class EnvState:
    """An environment in the middle of an episode; `set_state` goes on from it bit for bit."""

    scene: Scene
    snapshot: Snapshot
    outcome: str
    holding: int
    success_once: bool


class ToolUseEnv(gymnasium.Env):
    """A Panda arm with a tool in its hand, and an object that the tool is for.

    Actions: `Box(-1, 1, (6,), float32)`, the end effector's motion in this control step (1/6 s)
    relative to its present pose, in its own frame: translation, then rotation vector, in units
    of the task's action bounds. Finite actions out of range are clipped, and `info` says so.

    Observations: see `fleet_tools.envs.observations.observe`.

    Rewards: "sparse" is 1 on success, else 0. "dense" lies in [0, 1]: a third for nearness of
    tool and object, two thirds for progress towards success, and 1 on success.

    `info`: `outcome` ("running", "success", "time_limit" or "simulation_error"), `success` and
    `is_success` (now), `success_once` (so far), `progress` in [0, 1], `forces` (of contact on
    tool and object, by `WorldState.forces`); with images, `cameras`, each with its intrinsics `K`
    (3, 3), in pixels, and pose `X_WC` (4, 4) in the world; after a step also `action` (as executed)
    and `action_clipped`; after a simulation error, `error`. Success terminates, the other two
    truncate. The time limit is the task file's; `gym.make(..., max_episode_steps=...)` can only cut
    episodes shorter.

    Args:
        task: Name of a task of the package, or path of a task file.
        obs_mode: "state", "multitask_state", "point_cloud" or "rgbd".
        split: From which tool and object are drawn: "train", "unseen_pairs", "unseen_tools",
            "unseen_objects" or "all" (`fleet_tools.sim.splits`).
        tool, object: Name in the task's family, or path of a model folder; drawn if None.
        randomization: "on", "off", or a mapping from groups to bool (`fleet_tools.sim.scene`).
        reward: "sparse" or "dense".
        render_mode: None, "rgb_array", or "human" (Meshcat, in the browser).
        robot_visuals: "light", or "franka" for the manufacturer's meshes (`fleet_tools.robot`).
        camera_size: (width, height) of the cameras' pictures, in pixels.
        channels: What "rgbd" gives of "rgb", "depth" and "segmentation"; nothing else is rendered.
        cloud_size: How many points of the tool, and of the object, "point_cloud" gives.
        cloud_sampling: "farthest" or "even" (`fleet_tools.perception.point_cloud`).

    Raises:
        ConfigError, UnknownNameError: An argument names something that does not exist.
        MissingLibraryError: Images are wanted where OpenGL is missing.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": CONTROL_RATE}

    def __init__(
        self,
        task: str,
        obs_mode: str = "state",
        split: str = "train",
        tool: str | None = None,
        object: str | None = None,
        randomization: RandomizationSwitch = "on",
        reward: str = "sparse",
        render_mode: str | None = None,
        robot_visuals: str = "light",
        camera_size: Sequence[int] = (320, 240),
        channels: Sequence[str] = CHANNELS,
        cloud_size: Sequence[int] = (512, 512),
        cloud_sampling: str = "farthest",
    ) -> None:
        self.task = load_task(task)
        self._vision = choose_vision(
            self.task, obs_mode, camera_size, channels, cloud_size, cloud_sampling
        )
        _require("reward", reward, REWARDS)
        _require("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        _require("robot_visuals", robot_visuals, ("light", "franka"))
        check_randomization(randomization)
        self.reward, self.render_mode = reward, render_mode
        self._find_models(tool, object)
        model_pairs(self.task, split)  # complains of a split that is not there
        self.split = split
        self._drawn_from = {
            "split": split,
            "tool": tool,
            "object": object,
            "randomization": randomization,
        }
        self._robot_visuals = robot_visuals
        if self._vision.has_images or render_mode == "rgb_array":
            require_gl()
        self.meshcat = open_meshcat() if render_mode == "human" else None

        self.action_space = action_space()
        self.senses = layout(self.task.keypoints, self._vision)
        self.observation_space = observation_space(self.senses)
        self.action_scale = action_scale(self.task.action)

        self.scene: Scene | None = None
        self._simulation: Simulation | None = None
        self._sight = Sight(self._vision, pictures=render_mode == "rgb_array")
        self._initial: WorldState | None = None
        self._moment: Moment | None = None
        self._outcome = SIMULATION_ERROR  # there is no episode yet
        self._holding = 0  # for how many steps the success predicates have held
        self._success_once = False

    # --- Gymnasium ---------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begins an episode in the scene that `seed` draws, or in `options["scene"]`.

        Args:
            seed: Draws the scene; the next one follows from the generator that it also seeds.
            options: {"scene": a Scene, or its JSON as a dict}.

        Raises:
            ConfigError, UnknownNameError: The options or the scene do not fit this environment.
        """
        options = dict(options or {})
        given = options.pop("scene", None)
        if options:
            raise UnknownNameError("option of reset", next(iter(options)), ["scene"])
        scene = self._check_scene(given) if given is not None else None
        super().reset(seed=seed)
        if scene is None:
            drawn = seed if seed is not None else int(self.np_random.integers(2**32))
            scene = sample_scene(self.task, drawn, **self._drawn_from)
        self._begin(scene)
        self._outcome, self._holding, self._success_once = RUNNING, 0, False
        return self._observe(), self._info(self._verdict())

    def step(
        self, action: np.ndarray
    ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Runs one control step.

        Raises:
            InvalidActionError: The action has the wrong shape or kind, or is not finite.
            EpisodeOverError: No episode is in progress.
        """
        executed, clipped = checked_action(action)
        self._require_episode()
        if self._outcome != RUNNING:
            raise EpisodeOverError(f"The episode ended as {self._outcome!r}; call reset().")
        did = {"action": executed, "action_clipped": clipped}
        try:
            self._simulation.step(executed.astype(np.float64) * self.action_scale)
            self._moment = self._look()
        except SimulationError as error:
            self._outcome = SIMULATION_ERROR
            info = self._info(Verdict(False, 0.0)) | did | {"error": str(error)}
            return self._observe(), 0.0, False, True, info
        verdict = self._verdict()
        self._holding = self._holding + 1 if verdict.holds else 0
        self._success_once |= verdict.holds
        if self._holding >= self.task.success_steps:
            self._outcome = SUCCESS
        elif self._simulation.steps >= self.task.max_episode_steps:
            self._outcome = TIME_LIMIT
        if self.render_mode == "human":
            self.render()
        return (
            self._observe(),
            self._reward(verdict),
            self._outcome == SUCCESS,
            self._outcome == TIME_LIMIT,
            self._info(verdict) | did,
        )

    def render(self) -> np.ndarray | None:
        """Returns the picture of a third view, (480, 640, 3) uint8; with "human", shows Meshcat.

        Raises:
            EpisodeOverError: There is nothing to show before the first reset.
        """
        self._require_episode()
        if self.render_mode == "rgb_array":
            return self._sight.picture(self._simulation)
        if self.render_mode == "human":
            self._simulation.publish()
        return None

    def close(self) -> None:
        """Lets go of the simulation and of OpenGL; `reset` begins anew."""
        self._sight.close()
        self._leave()

    # --- Beyond Gymnasium --------------------------------------------------------------------

    def world_state(self) -> WorldState:
        """Returns the privileged state, from which experts plan and success is judged."""
        self._require_episode()
        return self._moment.state

    def verdicts(self) -> dict[str, Verdict]:
        """Returns what each of the task's success predicates says now, by its place in the file."""
        self._require_episode()
        return {
            f"success[{i}] {predicate.type}": judge(predicate, self._initial, self._moment.state)
            for i, predicate in enumerate(self.task.success)
        }

    def get_state(self) -> EnvState:
        """Returns a value from which `set_state` continues this episode bit for bit."""
        self._require_episode()
        snapshot = self._simulation.snapshot()
        return EnvState(self.scene, snapshot, self._outcome, self._holding, self._success_once)

    def set_state(self, state: EnvState) -> dict[str, np.ndarray]:
        """Goes back to a state of `get_state`, of this or another environment of the task.

        Gymnasium's TimeLimit wrapper counts on; branch with `gym.make(..., max_episode_steps=-1)`
        or on `env.unwrapped`, which counts for itself.

        Returns:
            The observation there.

        Raises:
            ConfigError, UnknownNameError: The state is one of another task.
            SimulationError: It is no state from which a simulation could go on.
        """
        self._check_scene(state.scene)
        self._outcome = SIMULATION_ERROR  # until all has gone well
        self._begin(state.scene)
        self._simulation.restore(state.snapshot)
        self._moment = self._look()
        self._outcome, self._holding = state.outcome, state.holding
        self._success_once = state.success_once
        return self._observe()

    def state_digest(self) -> int:
        """Returns a 64-bit hash of the simulation's exact state."""
        self._require_episode()
        return self._simulation.snapshot().digest()

    def end_by_time_limit(self) -> str:
        """Ends a running episode, and returns its outcome; for wrappers that limit time."""
        self._outcome = TIME_LIMIT
        return self._outcome

    # --- Parts -------------------------------------------------------------------------------

    def _require_episode(self) -> None:
        if self._moment is None:
            raise EpisodeOverError("No episode has begun; call reset().")

    def _begin(self, scene: Scene) -> None:
        current = self.scene
        if current is None or (scene.tool, scene.object) != (current.tool, current.object):
            tool, object = self._find_models(scene.tool, scene.object)
            self._leave()
            world = build_world(
                self.task,
                tool,
                object,
                meshcat=self.meshcat,
                robot_visuals=self._robot_visuals,
            )
            self._simulation = Simulation(world, tool, object)
            self._sight.enter(world)
        self.scene = scene
        self._simulation.reset(scene)
        self._sight.begin(scene)
        self._moment = self._look()
        self._initial = self._moment.state

    def _leave(self) -> None:
        self._simulation = self._moment = self._initial = self.scene = None
        # A diagram is megabytes in a few Python objects that refer to each other in circles, so
        # Python would wait for a hundred of them before it looked.
        gc.collect()

    def _look(self) -> Moment:
        return self._sight.look(self._simulation, self.scene)

    def _find_models(self, tool: str | None, object: str | None) -> list[Model | None]:
        task = self.task
        wanted = [
            ("tool", task.tool_family, tool, task.keypoints.tool),
            ("object", task.object_family, object, task.keypoints.object),
        ]
        models = [
            find_model(kind, family, name, task.assets) if name is not None else None
            for kind, family, name, _ in wanted
        ]
        for model, (*_, keypoints) in zip(models, wanted, strict=True):
            for keypoint in keypoints if model is not None else ():
                model.keypoint(keypoint)
        return models

    def _check_scene(self, given: Scene | Mapping[str, Any]) -> Scene:
        scene = given if isinstance(given, Scene) else parse(Scene, given, "options['scene']")
        if scene.task != self.task.name:
            raise ConfigError(
                f"The scene is one of the task {scene.task!r}; this environment's task is "
                f"{self.task.name!r}."
            )
        resistances = list(self.task.randomization.joint_resistance)
        if set(scene.joint_resistance) != set(resistances):
            raise ConfigError(
                f"The scene gives the resistance of the joints {list(scene.joint_resistance)}; "
                f"the task {self.task.name!r} has {resistances}."
            )
        if scene.cameras.keys() != self.task.cameras.keys():
            raise ConfigError(
                f"The scene places the cameras {list(scene.cameras)}; the task "
                f"{self.task.name!r} has {list(self.task.cameras)}."
            )
        self._find_models(scene.tool, scene.object)
        return scene

    def _verdict(self) -> Verdict:
        return judge_all(self.task.success, self._initial, self._moment.state)

    def _reward(self, verdict: Verdict) -> float:
        if self.reward == "sparse":
            return rewards.sparse(verdict)
        return rewards.dense(verdict, self.task.reach, self._moment.state)

    def _observe(self) -> dict[str, np.ndarray]:
        return observe(self.senses, self._moment)

    def _info(self, verdict: Verdict) -> dict[str, Any]:
        cameras = self._sight.cameras(self._moment)
        return {
            "outcome": self._outcome,
            "success": verdict.holds,
            "is_success": verdict.holds,
            "success_once": self._success_once,
            "progress": verdict.progress,
            "forces": self._moment.state.forces(),
            **({"cameras": cameras} if cameras else {}),
        }


def _require(what: str, given: object, known: tuple) -> None:
    if given not in known:
        raise UnknownNameError(what, given, [str(name) for name in known])
