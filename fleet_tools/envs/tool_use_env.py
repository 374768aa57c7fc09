"""The Gymnasium environment of every task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from fleet_tools.config.cameras import SensorName
from fleet_tools.envs.array_spec import action_scale, action_spec, check_action
from fleet_tools.envs.observation_modes import image_size, observables, observation_config
from fleet_tools.envs.observations import Observation, observation_space
from fleet_tools.envs.outcomes import OBJECT_LOST, RUNNING, SIMULATION_ERROR, SUCCESS, TIME_LIMIT
from fleet_tools.envs.predicate_functions import load_bound_task
from fleet_tools.envs.recorded_env import recorded
from fleet_tools.envs.stage import Stage
from fleet_tools.envs.staged_env import StagedEnv
from fleet_tools.envs.success import Verdict
from fleet_tools.errors import ConfigError, EpisodeOverError, SimulationError, require_name, shown
from fleet_tools.perception.camera_view import CHANNELS
from fleet_tools.perception.display import HEIGHT, WIDTH, open_meshcat, picture_renderer
from fleet_tools.perception.observer import Observer
from fleet_tools.robot.arm import DEFAULT_ROBOT, LIGHT, Arm
from fleet_tools.robot.arm_model import fitted_task
from fleet_tools.sim.apply_scene import check_scene
from fleet_tools.sim.catalog import admit_model
from fleet_tools.sim.own_models import load_admitted_robot
from fleet_tools.sim.scene import RandomizationSwitch, check_randomization, check_seed, sample_scene
from fleet_tools.sim.splits import model_pairs
from fleet_tools.storage.provenance import TaskFile

REWARDS = ("sparse", "dense")


class ToolUseEnv(StagedEnv):
    """An arm with a tool in its hand, and an object on which the tool is used.

    Actions: `Box(-1, 1, (6,), float32)`, the motion of the end effector in this control step, in
    its own frame: translation, then rotation vector, in units of the task's action bounds. It
    starts at the last commanded pose if the end effector is near it, else at the present one
    (`fleet_tools.robot.controller.Reference.continued_from`). Finite actions out of range are
    clipped, and `info` tells so.

    Observations: see `fleet_tools.envs.observations`.

    Rewards: "sparse" is 1 in the step that ends the episode as a success, else 0. "dense" adds the
    change of a potential in [0, 1], of the tool's alignment and of the progress towards success
    (`fleet_tools.envs.rewards`): its sum over an episode depends on start, end and success alone.

    `info` has `outcome` ("running", "success", "time_limit", "object_lost" or "simulation_error").
    It has `success` (now; `is_success` is the same), `success_once` (so far), `progress` in [0, 1],
    `verdicts` (whether each success predicate `holds`, and its `progress`, see
    `ToolUseEnv.verdicts`). It has `forces` (contact forces on tool and object, see
    `WorldState.forces`), `limits` (what the limits of the arm's joints did, see
    `WorldState.limits`). Its `handling` has forces, work, time and path so far, see
    `fleet_tools.envs.handling`, and whether it is `gentle`: a success within the limits of the
    task, if it has any. After a step there are also `action` (as executed) and `action_clipped`,
    after a simulation error `error`. With images there is `cameras`, each with its intrinsics `K`
    (3, 3), in pixels, and pose `X_WC` (4, 4) in the world.

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
        obs_mode: "state", "multitask_state", "point_cloud", "cloud_and_keypoints" or "rgbd".
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
            or another name in `fleet_tools.perception.renderer.RENDERERS`.
        image_source: What renders the images of the mode "rgbd": "vtk", or another such name.
        keypoint_rows: Rows for the keypoints of the tool, and of the object, in the mode
            "multitask_state"; policies for several tasks need the same number in all.
        sensors: "ideal", or "active_stereo" or "structured_light": errors of the cameras, whose
            figures are the task file's (`fleet_tools.config.cameras`).

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
        render_size: Sequence[int] = (WIDTH, HEIGHT),
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
        self._display = picture_renderer() if render_mode == "rgb_array" else None
        self.meshcat = open_meshcat() if render_mode == "human" else None

        self._observables = observables(
            obs_mode, self.task.keypoints, observed, self.robot.num_joints
        )
        self.features = {name: each.spec for name, each in self._observables.items()}
        self.observation_space = observation_space(self.features)
        self.action_spec = action_spec(self.task.step_bounds, self.task.control_rate_hz)
        self.action_space = self.action_spec.space
        self.action_scale = action_scale(self.task.step_bounds)

        viewers = [self._observer] if self._display is None else [self._observer, self._display]
        self._stage = Stage(
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
                f"The options of reset are a mapping such as {{'scene': ...}}; given: "
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
                'gymnasium.make(..., render_mode="rgb_array", render_size=(width, height)) says '
                "what it returns. `find_view` and `image` of the unwrapped environment draw other "
                "cameras and sizes."
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
        self._stage.close()


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
