"""The Gymnasium environment of every task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from fleet_tools.config.cameras import SensorName
from fleet_tools.envs.array_spec import action_scale, action_spec, check_action
from fleet_tools.envs.contact_metrics import ContactMetrics
from fleet_tools.envs.episode_state import EnvState, EpisodeState
from fleet_tools.envs.observation_modes import image_size, observables, observation_config
from fleet_tools.envs.observations import Observation, observation_space, observe
from fleet_tools.envs.outcomes import OBJECT_LOST, RUNNING, SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.envs.predicate_functions import load_bound_task
from fleet_tools.envs.recorded_env import RecordedEnv, recorded
from fleet_tools.envs.success import Verdict
from fleet_tools.envs.viewed_simulation import ViewedSimulation
from fleet_tools.errors import (
    ConfigError,
    EpisodeOverError,
    RenderServerError,
    SimulationError,
    require_name,
    shown,
)
from fleet_tools.perception.camera_view import CHANNELS, PICTURE_SIZE, THIRD, CameraView
from fleet_tools.perception.measurement import Capture
from fleet_tools.perception.observer import Observer
from fleet_tools.robot.arm import DEFAULT_ROBOT, LIGHT, Arm
from fleet_tools.robot.arm_model import fitted_task
from fleet_tools.sim.apply_scene import check_scene
from fleet_tools.sim.catalog import admit_model
from fleet_tools.sim.own_models import OwnModel, load_admitted_robot, own_models, own_robot
from fleet_tools.sim.scene import (
    RandomizationSwitch,
    Scene,
    check_randomization,
    check_seed,
    marked_place,
    sample_scene,
)
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.splits import model_pairs
from fleet_tools.sim.world_state import WorldState
from fleet_tools.storage.provenance import TaskFile

# `fleet_tools.perception.display` is imported where people look: states need no rendering.
if TYPE_CHECKING:
    from fleet_tools.perception.render_scene import VtkRenderer

REWARDS = ("sparse", "dense")


class ToolUseEnv(RecordedEnv):
    """An arm with a tool in its hand, and an object on which the tool is used.

    Actions: `Box(-1, 1, (6,), float32)`, the motion of the end effector in this control step, in
    its own frame: translation, then rotation vector, in units of the task's action bounds. It
    starts at the last commanded pose if the end effector is near it, else at the present one
    (`fleet_tools.robot.controller.Reference.continued_from`). Finite actions out of range are
    clipped, and `info` tells so. Entries are rounded, see `check_action`.

    Observations: see `fleet_tools.envs.observations`.

    Rewards: "sparse" is 1 in the step that ends the episode as a success, else 0. "dense" adds the
    change of a potential in [0, 1], of the tool's alignment and of the progress towards success
    (`fleet_tools.envs.rewards`): its sum over an episode depends on start, end and success alone.

    `info` has `outcome` ("running", "success", "time_limit", "object_lost" or "simulation_error").
    It has `success` (now; `is_success` is the same), `success_once` (so far), `progress` in [0, 1],
    `verdicts` (whether each success predicate `holds`, and its `progress`, see
    `ToolUseEnv.verdicts`). It has `forces` (contact forces on tool and object, see
    `WorldState.forces`), `limits` (what the limits of the arm's joints did, see
    `WorldState.limits`). Its `contact_metrics` has forces, work, time and path so far, see
    `fleet_tools.envs.contact_metrics`, and whether it is `gentle`: a success within the limits of
    the task, if it has any. After a step there are also `action` (as executed) and
    `action_clipped`, after a simulation error `error`. With images there is `cameras`, each with
    its intrinsics `K` (3, 3), in pixels, and pose `X_WC` (4, 4) in the world.

    A scene may have further objects (`Scene.next_objects`), all on the table from the start. Once
    the success predicates have held for one, the next is in use: observations, predicates, rewards
    and `info` are about it and compare with this moment. The last one done is the success, each has
    the task's time limit, and `info` has the number of `objects_done`.

    Success terminates, and so does "object_lost": the object has left the task's workspace
    (`fleet_tools.config.geometry`), a failure with progress 0. The time limit and
    simulation errors truncate. The time limit is the task file's;
    `gym.make(..., max_episode_steps=...)` can only shorten episodes.

    Args:
        task: Name of a task of the package, or path of a task file, or a stored one (with
            `EnvSpec.make_stored`). Functions that the file names as predicates are
            imported, so it has to be trusted like code.
        obs_mode: "state", "multitask_state", "point_cloud", "cloud_and_keypoints" or "rgbd"; or
            module:name of an `ObservationMode` of your own.
        split: Split from which tool and object are drawn: "train", "unseen_pairs", "unseen_tools",
            "unseen_objects" or "all" (`fleet_tools.sim.splits`).
        tool: Name in the task's family, or path of a model folder; drawn if None.
        object: Likewise.
        randomization: "on", "off", or a mapping from groups to bool (`fleet_tools.sim.scene`).
        reward: "sparse" or "dense".
        render_mode: None, "rgb_array", or "human" (Meshcat, in the browser).
        render_size: (width, height) of the picture of `render`, in pixels.
        robot: Name of a robot of the package, or path of a robot's file (`fleet_tools.robot.arm`).
        robot_visuals: "light", or another name of the robot's visual meshes.
        camera_size: (width, height) of the cameras' images, in pixels.
        channels: Channels of the mode "rgbd", of "rgb", "depth" and "segmentation"; no others are
            rendered.
        cloud_size: Number of points of the tool, and of the object, in the mode "point_cloud".
        cloud_sampling: "farthest" or "even" (`fleet_tools.perception.point_cloud`).
        cloud_source: How cameras see the cloud's points: "rays", "vtk" (rendered, needs OpenGL),
            or module:name of a renderer of your own (`fleet_tools.perception.renderer`).
        image_source: What renders the images of the mode "rgbd": "vtk", or likewise.
        keypoint_rows: Rows for the keypoints of the tool, and of the object, in the mode
            "multitask_state"; policies for several tasks need the same number in all.
        sensors: "ideal", or "active_stereo" or "structured_light": errors of the cameras, whose
            figures are the task file's (`fleet_tools.config.cameras`).

    What tells of an episode (`scene`, `world_state`, `get_state`, ...) raises an EpisodeOverError
    before the first one begins.

    Attributes:
        task: The task file's content, with the robot's numbers where the file leaves them to it.
        robot: The arm.
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

    _episode: EpisodeState | None = None
    _watcher: Callable[[Simulation], None] | None = None
    _display: "VtkRenderer | None" = None

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
        robot: str | Arm = DEFAULT_ROBOT,
        robot_visuals: str = LIGHT,
        camera_size: Sequence[int] = (320, 240),
        channels: Sequence[str] = CHANNELS,
        cloud_size: Sequence[int] = (512, 512),
        cloud_sampling: str = "farthest",
        cloud_source: str = "rays",
        image_source: str = "vtk",
        sensors: SensorName = "ideal",
        keypoint_rows: int = 8,
        render_size: Sequence[int] = PICTURE_SIZE,
    ) -> None:
        self.robot = robot if isinstance(robot, Arm) else load_admitted_robot(robot)
        self.robot.model_file(robot_visuals)  # raises if it has no such meshes
        self.task = fitted_task(self.robot, load_bound_task(task))
        self.metadata = {**type(self).metadata, "render_fps": self.task.control_rate_hz}
        observed = observation_config(
            self.task,
            obs_mode,
            camera_size,
            channels,
            cloud_size,
            cloud_sampling,
            cloud_source,
            image_source,
            sensors,
            keypoint_rows,
        )
        require_name("reward", reward, REWARDS)
        if render_mode is not None:
            require_name("render_mode", render_mode, self.metadata["render_modes"], "Or None.")
        check_randomization(randomization)
        self.reward, self.render_mode = reward, render_mode
        self._render_size = image_size("render_size", render_size)
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
        self._observer = Observer(observed)
        self.meshcat = None
        if render_mode is not None:
            from fleet_tools.perception import display

            if render_mode == "rgb_array":
                self._display = display.picture_renderer()
            else:
                self.meshcat = display.open_meshcat()
        self._observables = observables(
            obs_mode, self.task.keypoints, observed, self.robot.num_joints
        )
        self.features = {name: each.spec for name, each in self._observables.items()}
        self.observation_space = observation_space(self.features)
        self.action_spec = action_spec(self.task.step_bounds, self.task.control_rate_hz)
        self.action_space = self.action_spec.space
        self.action_scale = action_scale(self.task.step_bounds)

        viewers = [self._observer] if self._display is None else [self._observer, self._display]
        self._viewed = ViewedSimulation(
            self.task, self.robot, viewers, robot_visuals=robot_visuals, meshcat=self.meshcat
        )

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
                "Expected a mapping as options of reset, such as {'scene': ...}; given: "
                f"{shown(options)}."
            )
        for name in options or {}:
            require_name("option of reset", name, ["scene"])
        seed = None if seed is None else check_seed(seed)
        given = (options or {}).get("scene")
        scene = check_scene(self.task, self.robot, given) if given is not None else None
        super().reset(seed=seed)
        if scene is None:
            drawn = seed if seed is not None else int(self.np_random.integers(2**32))
            scene = sample_scene(self.task, drawn, **self._scene_options)
        _, episode = self._begin(scene)
        result = self._observe(episode), self._info(episode, episode.verdicts())
        self._episode = episode
        return result

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Runs one control step.

        Args:
            action: (6,) numbers, see the class.

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
            is_last = simulation.steps >= self.steps_at_most(episode.max_steps)
            now, verdicts = episode.after(measurement, is_last)
            reward = now.reward(episode, self.reward == "dense")
            if now.object_is_done:
                now = self._with_next_object(now, earlier)
                verdicts = now.verdicts()
        except SimulationError as error:
            self._require_viewer()
            episode = self._episode = replace(episode, outcome=SIMULATION_ERROR)
            failed = dict.fromkeys(episode.verdicts(), Verdict(False, 0.0))
            info = self._info(episode, failed) | done | {"error": str(error)}
            return self._observe(episode), 0.0, False, True, info
        self._episode = now
        if self.render_mode == "human":
            self.render()
        return (
            self._observe(now),
            reward,
            now.outcome in (SUCCESS, OBJECT_LOST),
            now.outcome == TIME_LIMIT,
            self._info(now, verdicts) | done,
        )

    def render(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *given: object, **named: object
    ) -> np.ndarray | None:
        """Returns the third-person view, (height, width, 3) uint8; with "human", updates Meshcat.

        Args:
            *given: None; `render_mode` and `render_size` of the class say what is drawn.
            **named: None.

        Raises:
            ConfigError: There are arguments.
            EpisodeOverError: No episode has begun.
            RenderServerError: Meshcat has ended.
        """
        if given or named:
            raise ConfigError(
                f"render() takes no arguments; given: {shown([*given, *named])}. "
                'gymnasium.make(..., render_mode="rgb_array", render_size=(width, height)) sets '
                "the size of its images. Use `find_view` and `image` of the unwrapped environment "
                "for other cameras and sizes."
            )
        _, simulation = self._running()
        if self.render_mode is None:
            gymnasium.logger.warn(
                'render() draws nothing without gymnasium.make(..., render_mode="rgb_array"), or '
                '"human".'
            )
        if self._display is not None:
            return self.image(self.find_view(size=self._render_size))
        if self.render_mode == "human":
            self._require_viewer()
            simulation.publish()
        return None

    def close(self) -> None:
        """Releases the simulation and OpenGL; `reset` starts anew."""
        self._episode = None
        self._viewed.close()

    def own_models(self) -> dict[OwnModel, Path]:
        """Returns the models beside the package's, see `RecordedEnv.own_models`."""
        return own_models(self.task) | own_robot(self.robot)

    @property
    def task_name(self) -> str:
        """Name of the task."""
        return self.task.name

    @property
    def scene(self) -> Scene:
        """Scene of the present episode."""
        return self._running()[0].scene

    @property
    def simulation(self) -> Simulation:
        """The simulation of the present episode, for viewers; do not change it."""
        return self._running()[1]

    def world_state(self) -> WorldState:
        """Returns the privileged state, on which experts plan and success is judged."""
        return self._running()[0].measurement.state

    def objects_done(self) -> int:
        """Returns how many objects of the scene are done; the next one is in use."""
        return self._running()[0].objects_done

    def contact_metrics(self) -> ContactMetrics:
        """Returns how the task was handled so far in this episode."""
        return self._running()[0].contact_metrics

    def verdicts(self) -> dict[str, Verdict]:
        """Returns the present verdict of each success predicate, by its place in the task file.

        None holds once the object is lost.
        """
        return self._running()[0].verdicts()

    def find_view(self, camera: str = THIRD, size: tuple[int, int] = PICTURE_SIZE) -> CameraView:
        """Returns where a camera is now, for `image`.

        Args:
            camera: "third", from where `render` looks, or the name of a camera of the task.
            size: Width and height of the image, pixels.

        Raises:
            UnknownNameError: There is no such camera.
        """
        from fleet_tools.perception.display import find_view

        episode, simulation = self._running()
        return find_view(self.task, episode.scene, simulation.end_effector_pose(), camera, size)

    def image(self, view: CameraView) -> np.ndarray:
        """Returns a picture of the present state for people, (height, width, 3) uint8.

        Raises:
            ConfigError: The render mode is not "rgb_array".
        """
        _, simulation = self._running()
        if self._display is None:
            raise ConfigError(
                'Images need an environment with render_mode="rgb_array"; '
                f"given: {self.render_mode!r}."
            )
        return self._display.images(simulation.query(), [view], ["rgb"])[0]["rgb"]

    @contextmanager
    def watched(self, watcher: Callable[[Simulation], None]) -> Iterator[None]:
        """Shows the simulation to a watcher within the steps of a block, see `Simulation.step`.

        There, `find_view` and `image` show the present of the simulation, while `world_state` and
        the observations show the last completed step.
        """
        before, self._watcher = self._watcher, watcher
        try:
            yield
        finally:
            self._watcher = before

    def get_state(self) -> EnvState:
        """Returns a value from which `set_state` continues this episode bit for bit."""
        episode, simulation = self._running()
        measurement = episode.measurement
        return EnvState(
            episode.scene,
            simulation.snapshot(),
            episode.outcome,
            episode.steps_held,
            episode.success_once,
            None if measurement.shown is measurement.latest else measurement.shown,
            episode.contact_metrics,
            episode.initial if episode.objects_done else None,
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
        scene = check_scene(self.task, self.robot, state.scene)
        simulation, episode = self._begin(scene)
        simulation.restore(state.snapshot)
        self._viewed.show_object(simulation)
        episode = self._episode = replace(
            episode,
            measurement=self._observer.measure(simulation, scene, state.shown),
            initial=episode.initial if state.initial is None else state.initial,
            objects_done=simulation.objects_done,
            outcome=state.outcome,
            steps_held=state.steps_held,
            success_once=state.success_once,
            contact_metrics=state.contact_metrics,
        )
        return self._observe(episode)

    def state_digest(self) -> int:
        """Returns a 64-bit hash of the exact state of the simulation."""
        return self._running()[1].snapshot().digest()

    def end_by_time_limit(self) -> str:
        """Ends a running episode, for wrappers that limit time; returns its outcome."""
        self._episode = replace(self._running()[0], outcome=TIME_LIMIT)
        return TIME_LIMIT

    # --- Parts -------------------------------------------------------------------------------

    def _episode_state(self) -> tuple[str, EnvState] | None:
        if self._episode is None:
            return None
        if self._episode.outcome == SIMULATION_ERROR:
            raise EpisodeOverError(
                "The episode ended as 'simulation_error', and a copy cannot continue a failed "
                "simulation; call reset() first."
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

    def _running(self) -> tuple[EpisodeState, Simulation]:
        if self._episode is None or self._viewed.simulation is None:
            raise EpisodeOverError("No episode has begun; call reset().")
        return self._episode, self._viewed.simulation

    def _require_viewer(self) -> None:
        """Checks that Meshcat goes on, whose end is no outcome of an episode."""
        try:
            if self.meshcat is not None:
                self.meshcat.web_url()
        except RuntimeError as error:
            raise RenderServerError(
                f"Meshcat has stopped ({error}). It stops after a malformed message, which any "
                "page of a browser can send. Close pages of other programs at its address, and "
                "make the environment again."
            ) from error

    def _begin(self, scene: Scene) -> tuple[Simulation, EpisodeState]:
        """Resets the simulation to a scene.

        There is no episode until the caller has finished the one that is returned.
        """
        self._require_viewer()
        self._episode = None
        simulation = self._viewed.begin(scene)
        if self.meshcat is not None:
            from fleet_tools.perception.display import show_table

            show_table(self.meshcat, scene)
        measurement = self._observer.measure(simulation, scene)
        episode = EpisodeState(self.task, scene, measurement.state, measurement)
        workspace = self.task.workspace
        if lost := [name for name, p_W in simulation.link_places() if not workspace.contains(p_W)]:
            raise ConfigError(
                f"The scene of the task {self.task.name!r} starts with links of the object outside "
                f"the workspace, {workspace}: {', '.join(lost)}. Move the object, or set "
                "`workspace` in the task file."
            )
        for p_W in filter(None, map(marked_place, scene.objects)):
            if not workspace.contains(p_W):
                raise ConfigError(
                    f"The scene of the task {self.task.name!r} marks the place ({p_W[0]:.3g}, "
                    f"{p_W[1]:.3g}) m, outside the workspace, {workspace}. Give `place` a smaller "
                    "`distance_m` or another `bearing_deg`."
                )
        return simulation, episode

    def _with_next_object(self, episode: EpisodeState, earlier: Capture | None) -> EpisodeState:
        """Returns the episode at the same moment with the next object in use.

        Args:
            episode: The episode, in which an object is done.
            earlier: See `Observer.measure`.
        """
        simulation = self._running()[1]
        simulation.use_next_object()
        self._viewed.show_object(simulation)
        measured = self._observer.measure(simulation, episode.scene, earlier)
        return episode.with_next_object(measured)

    def _observe(self, episode: EpisodeState) -> Observation:
        self.observed = observe(self._observables, episode.measurement)
        return self.observed

    def _info(self, episode: EpisodeState, verdicts: dict[str, Verdict]) -> dict[str, Any]:
        return episode.info(verdicts, self._observer.camera_info(episode.measurement))


def unwrap(env: gymnasium.Env) -> ToolUseEnv:
    """Returns the environment of this package that is inside Gymnasium's wrappers.

    Raises:
        ConfigError: It is an environment of another package.
    """
    inner = recorded(env)
    if not isinstance(inner, ToolUseEnv):
        raise ConfigError(
            "Expected a tool-use environment, such as gymnasium.make('FleetTools/Hammer-v0'); "
            f"given: {type(inner).__name__}."
        )
    return inner
