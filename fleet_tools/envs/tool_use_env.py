"""The Gymnasium environment of every task."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from pydrake.geometry import Meshcat

from fleet_tools.config.cameras import SensorName
from fleet_tools.envs import rewards
from fleet_tools.envs.actions import action_scale, action_spec, check_action
from fleet_tools.envs.observations import Observation, observables, observation_space, observe
from fleet_tools.envs.outcomes import (
    OBJECT_LOST,
    RUNNING,
    SIMULATION_ERROR,
    SUCCESS,
    TIME_LIMIT,
)
from fleet_tools.envs.predicate_functions import load_bound_task
from fleet_tools.envs.recorded_env import RecordedEnv, recorded
from fleet_tools.envs.success import Verdict, conjunction, judge_each
from fleet_tools.errors import (
    ConfigError,
    EpisodeOverError,
    RenderServerError,
    SimulationError,
    require_name,
    shown,
)
from fleet_tools.perception.display import HEIGHT, THIRD, WIDTH, Display, View, find_view
from fleet_tools.perception.measurement import Capture, Measurement
from fleet_tools.perception.meshcat_table import show_table
from fleet_tools.perception.observation_config import CHANNELS, ObservationConfig
from fleet_tools.perception.observer import Observer
from fleet_tools.perception.opengl import require_gl
from fleet_tools.perception.ray_casting import require_embree
from fleet_tools.perception.third_person_view import open_meshcat
from fleet_tools.robot.panda import Visuals
from fleet_tools.sim.own_models import OwnModel, own_models
from fleet_tools.sim.scene import (
    RandomizationSwitch,
    Scene,
    check_randomization,
    check_seed,
    sample_scene,
)
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.snapshot import Snapshot
from fleet_tools.sim.splits import model_pairs
from fleet_tools.sim.task_models import admit_model, check_scene, find_task_model
from fleet_tools.sim.world import build_world
from fleet_tools.sim.world_state import WorldState
from fleet_tools.storage.provenance import TaskFile

REWARDS = ("sparse", "dense")


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
    """

    scene: Scene
    snapshot: Snapshot
    outcome: str
    steps_held: int
    success_once: bool
    shown: Capture | None = None


@dataclass(frozen=True, eq=False)
class _Episode:
    """What an episode has, from its reset on."""

    scene: Scene
    initial: WorldState
    measurement: Measurement
    outcome: str = RUNNING
    steps_held: int = 0
    success_once: bool = False


class ToolUseEnv(RecordedEnv):
    """A Panda arm with a tool in its hand, and an object on which the tool is used.

    Actions: `Box(-1, 1, (6,), float32)`, the motion of the end effector in this control step
    relative to its present pose, in its own frame: translation, then rotation vector, in units of
    the task's action bounds. Finite actions out of range are clipped, and `info` tells so.

    Observations: see `fleet_tools.envs.observations`.

    Rewards: "sparse" is 1 in the step that ends the episode as a success, else 0. "dense" adds the
    change of a potential in [0, 1], of the tool's alignment and of the progress towards success
    (`fleet_tools.envs.rewards`): its sum over an episode depends on start, end and success alone.

    `info`: `outcome` ("running", "success", "time_limit", "object_lost" or "simulation_error"),
    `success` (now; `is_success` is the same), `success_once` (so far), `progress` in [0, 1],
    `verdicts` (whether each success predicate `holds`, and its `progress`, see
    `ToolUseEnv.verdicts`), `forces` (contact forces on tool and object, see `WorldState.forces`),
    `limits` (what the limits of the arm's joints did, see `WorldState.limits`); with images,
    `cameras`, each with its intrinsics `K` (3, 3), in pixels, and pose `X_WC` (4, 4) in the world;
    after a step also `action` (as executed) and `action_clipped`; after a simulation error,
    `error`.

    Success terminates, and so does "object_lost": the object has left the task's workspace
    (`fleet_tools.config.geometry`), a failure with progress 0. The time limit and
    simulation errors truncate. The time limit is the task file's;
    `gym.make(..., max_episode_steps=...)` can only shorten episodes.

    Args:
        task: Name of a task of the package, or path of a task file, or a stored one (with
            `EnvSpec.make_stored`). Functions that the file names as predicates are
            imported, so it has to be trusted like code.
        obs_mode: "state", "multitask_state", "point_cloud" or "rgbd".
        split: Split from which tool and object are drawn: "train", "unseen_pairs", "unseen_tools",
            "unseen_objects" or "all" (`fleet_tools.sim.splits`).
        tool: Name in the task's family, or path of a model folder; drawn if None.
        object: Likewise.
        randomization: "on", "off", or a mapping from groups to bool (`fleet_tools.sim.scene`).
        reward: "sparse" or "dense".
        render_mode: None, "rgb_array", or "human" (Meshcat, in the browser).
        robot_visuals: "light", or "franka" for the manufacturer's meshes (`fleet_tools.robot`).
        camera_size: (width, height) of the cameras' images, in pixels.
        channels: Channels of the mode "rgbd", of "rgb", "depth" and "segmentation"; no others are
            rendered.
        cloud_size: Number of points of the tool, and of the object, in the mode "point_cloud".
        cloud_sampling: "farthest" or "even" (`fleet_tools.perception.point_cloud`).
        cloud_source: "rays", or "vtk" (rendered, needs OpenGL): how cameras see the cloud's points.
        sensors: "ideal", or "active_stereo" or "structured_light": errors of the cameras, whose
            figures are the task file's (`fleet_tools.config.cameras`).

    Attributes:
        task: The task file's content.
        metadata: Gymnasium's, with the task's control rate as "render_fps", Hz.
        features: Entries of the observation, by name.
        action_scale: (6,), the motion for which each entry of an action is 1, m and rad.
        meshcat: The viewer of the render mode "human"; None in other modes.

    Raises:
        ConfigError, UnknownNameError: An argument is not valid, or names what does not exist.
        MissingLibraryError: Images are asked for where OpenGL is missing, or clouds by rays where
            Embree is.
    """

    metadata = {"render_modes": ["rgb_array", "human"]}

    def __init__(
        self,
        task: str | TaskFile,
        obs_mode: str = "state",
        split: str = "train",
        tool: str | None = None,
        object: str | None = None,
        randomization: RandomizationSwitch = "on",
        reward: str = "sparse",
        render_mode: str | None = None,
        robot_visuals: Visuals = "light",
        camera_size: Sequence[int] = (320, 240),
        channels: Sequence[str] = CHANNELS,
        cloud_size: Sequence[int] = (512, 512),
        cloud_sampling: str = "farthest",
        cloud_source: str = "rays",
        sensors: SensorName = "ideal",
    ) -> None:
        self.task = load_bound_task(task)
        self.metadata = {**type(self).metadata, "render_fps": self.task.control_rate_hz}
        observed = ObservationConfig.of(
            self.task,
            obs_mode,
            camera_size,
            channels,
            cloud_size,
            cloud_sampling,
            cloud_source,
            sensors,
        )
        require_name("reward", reward, REWARDS)
        if render_mode is not None:
            require_name("render_mode", render_mode, self.metadata["render_modes"], "Or None.")
        require_name("robot_visuals", robot_visuals, ("light", "franka"))
        check_randomization(randomization)
        self.reward, self.render_mode = reward, render_mode
        if tool is not None:
            self.task, tool = admit_model(self.task, "tool", tool)
        if object is not None:
            self.task, object = admit_model(self.task, "object", object)
        model_pairs(self.task, split)  # raises if there is no such split
        self.split = split
        self._scene_options: dict[str, Any] = {
            "split": split,
            "tool": tool,
            "object": object,
            "randomization": randomization,
        }
        self._robot_visuals: Visuals = robot_visuals
        if observed.needs_renderer or render_mode == "rgb_array":
            require_gl()
        if observed.casts_rays:
            require_embree()
        self.meshcat: Meshcat | None = open_meshcat() if render_mode == "human" else None

        self._observables = observables(self.task.keypoints, observed)
        self.features = {name: each.spec for name, each in self._observables.items()}
        self.observation_space = observation_space(self.features)
        self.action_spec = action_spec(self.task.step_bounds, self.task.control_rate_hz)
        self.action_space = self.action_spec.space
        self.action_scale = action_scale(self.task.step_bounds)

        self._observer = Observer(observed)
        self._display = Display() if render_mode == "rgb_array" else None
        self._simulation: Simulation | None = None
        self._episode: _Episode | None = None
        self._watcher: Callable[[Simulation], None] | None = None

    # --- Gymnasium ---------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins an episode in the scene that `seed` draws, or in `options["scene"]`.

        After an error the former episode goes on, or there is none.

        Args:
            seed: Draws the scene; without it the environment's generator does, which it also seeds.
            options: {"scene": a Scene, or its JSON as a dict}.

        Raises:
            ConfigError, UnknownNameError: The options or the scene do not fit this environment.
            RenderServerError: Meshcat has ended.
            SimulationError: No simulation can begin in the scene.
        """
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(
                f"The options of reset are a mapping such as {{'scene': ...}}; given: "
                f"{shown(options)}."
            )
        for name in options or {}:
            require_name("option of reset", name, ["scene"])
        seed = None if seed is None else check_seed(seed)
        given = (options or {}).get("scene")
        scene = check_scene(self.task, given) if given is not None else None
        super().reset(seed=seed)
        if scene is None:
            drawn = seed if seed is not None else int(self.np_random.integers(2**32))
            scene = sample_scene(self.task, drawn, **self._scene_options)
        _, episode = self._begin(scene)
        result = self._observe(episode), self._info(episode, self._judge(episode))
        self._episode = episode
        return result

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Runs one control step.

        Args:
            action: (6,), see the class.

        Raises:
            InvalidActionError: The action has a wrong shape or dtype, or is not finite.
            EpisodeOverError: No episode is in progress.
            RenderServerError: Meshcat has ended.
        """
        executed, clipped = check_action(action)
        episode, simulation = self._running()
        if episode.outcome != RUNNING:
            raise EpisodeOverError(f"The episode ended as {episode.outcome!r}; call reset().")
        done = {"action": executed, "action_clipped": clipped}
        try:
            simulation.step(executed.astype(np.float64) * self.action_scale, self._watcher)
            earlier = episode.measurement.latest
            measurement = self._observer.measure(simulation, episode.scene, earlier)
        except SimulationError as error:
            self._require_viewer()
            episode = self._episode = replace(episode, outcome=SIMULATION_ERROR)
            failed = dict.fromkeys(self._judge(episode), Verdict(False, 0.0))
            info = self._info(episode, failed) | done | {"error": str(error)}
            return self._observe(episode), 0.0, False, True, info
        before, episode = episode, replace(episode, measurement=measurement)
        verdicts = self._judge(episode)
        verdict = conjunction(verdicts.values())
        steps_held = episode.steps_held + 1 if verdict.holds else 0
        outcome = RUNNING
        if self._lost_links(measurement.state):
            outcome = OBJECT_LOST
        elif steps_held >= self.task.success_steps:
            outcome = SUCCESS
        elif simulation.steps >= self.steps_at_most(self.task.max_episode_steps):
            outcome = TIME_LIMIT
        episode = self._episode = replace(
            episode,
            outcome=outcome,
            steps_held=steps_held,
            success_once=episode.success_once or verdict.holds,
        )
        if self.render_mode == "human":
            self.render()
        return (
            self._observe(episode),
            self._reward(before, episode),
            outcome in (SUCCESS, OBJECT_LOST),
            outcome == TIME_LIMIT,
            self._info(episode, verdicts) | done,
        )

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the third-person view, (480, 640, 3) uint8; with "human", updates Meshcat.

        Raises:
            EpisodeOverError: No episode has begun.
            RenderServerError: Meshcat has ended.
        """
        _, simulation = self._running()
        if self._display is not None:
            return self.image(self.find_view())
        if self.render_mode == "human":
            self._require_viewer()
            simulation.publish()
        return None

    def close(self) -> None:
        """Releases the simulation and OpenGL; `reset` starts anew."""
        self._observer.close()
        if self._display is not None:
            self._display.close()
        self._release()

    # --- Beyond Gymnasium --------------------------------------------------------------------

    def own_models(self) -> dict[OwnModel, Path]:
        """Returns the models beside the package's, see `RecordedEnv.own_models`."""
        return own_models(self.task)

    @property
    def task_name(self) -> str:
        """Name of the task."""
        return self.task.name

    @property
    def scene(self) -> Scene:
        """Scene of the present episode.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[0].scene

    @property
    def simulation(self) -> Simulation:
        """The simulation of the present episode, for those who show it; not to be changed.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[1]

    def world_state(self) -> WorldState:
        """Returns the privileged state, on which experts plan and success is judged.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[0].measurement.state

    def verdicts(self) -> dict[str, Verdict]:
        """Returns the present verdict of each success predicate, by its place in the task file.

        None holds once the object is lost.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._judge(self._running()[0])

    def find_view(self, camera: str = THIRD, size: tuple[int, int] = (WIDTH, HEIGHT)) -> View:
        """Returns where a camera is now, for `image`.

        Args:
            camera: "third", from where `render` looks, or the name of a camera of the task.
            size: Width and height of the image, pixels.

        Raises:
            EpisodeOverError: No episode has begun.
            UnknownNameError: There is no such camera.
        """
        episode, simulation = self._running()
        return find_view(self.task, episode.scene, simulation.end_effector_pose(), camera, size)

    def image(self, view: View) -> np.ndarray:
        """Returns a picture of the present state for people, (height, width, 3) uint8.

        Raises:
            EpisodeOverError: No episode has begun.
            ConfigError: The render mode is not "rgb_array".
        """
        _, simulation = self._running()
        if self._display is None:
            raise ConfigError(
                'Images need an environment with render_mode="rgb_array"; '
                f"given: {self.render_mode!r}."
            )
        return self._display.image(simulation, view)

    @contextmanager
    def watched(self, watcher: Callable[[Simulation], None]) -> Iterator[None]:
        """Shows the simulation to a watcher within the steps of a block, see `Simulation.step`.

        There, `find_view` and `image` show the present of the simulation, while `world_state` and
        the observations are those of the last completed step.
        """
        before, self._watcher = self._watcher, watcher
        try:
            yield
        finally:
            self._watcher = before

    def get_state(self) -> EnvState:
        """Returns a value from which `set_state` continues this episode bit for bit.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        episode, simulation = self._running()
        measurement = episode.measurement
        return EnvState(
            episode.scene,
            simulation.snapshot(),
            episode.outcome,
            episode.steps_held,
            episode.success_once,
            None if measurement.shown is measurement.latest else measurement.shown,
        )

    def set_state(self, state: EnvState) -> Observation:
        """Returns to a state of `get_state`, of this or another environment of the task.

        A TimeLimit that is wrapped around the environment counts on.

        Returns:
            The observation there.

        Raises:
            ConfigError, UnknownNameError: The state belongs to another task.
            SimulationError: No simulation can continue from it.
        """
        scene = check_scene(self.task, state.scene)
        simulation, episode = self._begin(scene)
        simulation.restore(state.snapshot)
        episode = self._episode = replace(
            episode,
            measurement=self._observer.measure(simulation, scene, state.shown),
            outcome=state.outcome,
            steps_held=state.steps_held,
            success_once=state.success_once,
        )
        return self._observe(episode)

    def state_digest(self) -> int:
        """Returns a 64-bit hash of the exact state of the simulation.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[1].snapshot().digest()

    def end_by_time_limit(self) -> str:
        """Ends a running episode, for wrappers that limit time; returns its outcome.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        self._episode = replace(self._running()[0], outcome=TIME_LIMIT)
        return TIME_LIMIT

    # --- Parts -------------------------------------------------------------------------------

    def _episode_state(self) -> tuple[str, EnvState] | None:
        if self._episode is None:
            return None
        if self._episode.outcome == SIMULATION_ERROR:
            raise EpisodeOverError(
                "The episode ended as 'simulation_error', and from a failed simulation no copy "
                "continues; call reset() first."
            )
        return self.task.digest(), self.get_state()

    def _continue_from(self, state: tuple[str, EnvState]) -> None:
        digest, env_state = state
        if digest != self.task.digest():
            raise ConfigError(
                f"The file of the task {self.task.name!r} has changed since this environment was "
                "copied. Continue with the file as it was."
            )
        self.set_state(env_state)

    def _running(self) -> tuple[_Episode, Simulation]:
        if self._episode is None or self._simulation is None:
            raise EpisodeOverError("No episode has begun; call reset().")
        return self._episode, self._simulation

    def _require_viewer(self) -> None:
        """Checks that Meshcat goes on, whose end is no outcome of an episode."""
        try:
            if self.meshcat is not None:
                self.meshcat.web_url()
        except RuntimeError as error:
            raise RenderServerError(
                f"Meshcat has ended ({error}), as it does after a message that it cannot take, "
                "which any page of a browser may send. Close pages that are not its own, and make "
                "the environment again."
            ) from error

    def _begin(self, scene: Scene) -> tuple[Simulation, _Episode]:
        """Resets the simulation to a scene; a world is built for other models.

        There is no episode until the caller has finished the one that is returned.
        """
        self._require_viewer()
        self._episode, simulation = None, self._simulation
        models = scene.tool, scene.object
        if simulation is None or models != (simulation.scene.tool, simulation.scene.object):
            tool = find_task_model(self.task, "tool", scene.tool)
            object = find_task_model(self.task, "object", scene.object)
            self._release()
            world = build_world(
                self.task, tool, object, meshcat=self.meshcat, robot_visuals=self._robot_visuals
            )
            simulation = Simulation(world, tool, object, scene)
            self._observer.enter(world)
            if self._display is not None:
                self._display.enter(world)
            self._simulation = simulation
        else:
            simulation.reset(scene)
        self._observer.apply_scene(scene)
        if self._display is not None:
            self._display.apply_scene(scene)
        if self.meshcat is not None:
            show_table(self.meshcat, scene)
        measurement = self._observer.measure(simulation, scene)
        if lost := self._lost_links(measurement.state):
            raise ConfigError(
                f"The scene of the task {self.task.name!r} begins with links of the object outside "
                f"the workspace, {self.task.workspace}: {', '.join(lost)}. Move the object, or set "
                f"`workspace` in the task file."
            )
        return simulation, _Episode(scene, measurement.state, measurement)

    def _release(self) -> None:
        self._simulation = self._episode = None
        # A diagram is megabytes in a few Python objects with cyclic references, so that Python
        # would collect a hundred of them too late.
        gc.collect()

    def _judge(self, episode: _Episode) -> dict[str, Verdict]:
        state = episode.measurement.state
        verdicts = judge_each(self.task.success, episode.initial, state)
        if self._lost_links(state):
            return dict.fromkeys(verdicts, Verdict(False, 0.0))
        return verdicts

    def _lost_links(self, state: WorldState) -> list[str]:
        """Returns the links of the object whose centre of mass is outside the workspace."""
        workspace = self.task.workspace
        return [name for name, (p_W, _) in state.links.items() if not workspace.contains(p_W)]

    def _reward(self, before: _Episode, now: _Episode) -> float:
        if self.reward == "sparse":
            return rewards.sparse(now.outcome)
        states = now.initial, before.measurement.state, now.measurement.state
        return rewards.dense(self.task, now.outcome, *states)

    def _observe(self, episode: _Episode) -> Observation:
        return observe(self._observables, episode.measurement)

    def _info(self, episode: _Episode, verdicts: dict[str, Verdict]) -> dict[str, Any]:
        verdict = conjunction(verdicts.values())
        cameras = self._observer.camera_info(episode.measurement)
        return {
            "outcome": episode.outcome,
            "success": verdict.holds,
            "is_success": verdict.holds,  # as Stable-Baselines3 calls it
            "success_once": episode.success_once,
            "progress": verdict.progress,
            "verdicts": {name: asdict(verdict) for name, verdict in verdicts.items()},
            "forces": episode.measurement.state.forces(),
            "limits": episode.measurement.state.limits(),
            **({"cameras": cameras} if cameras else {}),
        }


def unwrap(env: gymnasium.Env) -> ToolUseEnv:
    """Returns the environment of this package that is inside Gymnasium's wrappers.

    Raises:
        ConfigError: It is an environment of another package.
    """
    inner = recorded(env)
    if not isinstance(inner, ToolUseEnv):
        raise ConfigError(
            "An environment of tool use is needed, such as gymnasium.make('FleetTools/Hammer-v0'); "
            f"given: {type(inner).__name__}."
        )
    return inner
