"""The episode of an environment of tool use: its states, its views, and its continuation."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydrake.geometry import Meshcat

from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.episode_state import EnvState, EpisodeState
from fleet_tools.envs.handling import Handling
from fleet_tools.envs.observations import Observable, Observation, observe
from fleet_tools.envs.outcomes import SIMULATION_ERROR, TIME_LIMIT
from fleet_tools.envs.recorded_env import RecordedEnv
from fleet_tools.envs.stage import Stage
from fleet_tools.envs.success import Verdict
from fleet_tools.errors import ConfigError, EpisodeOverError, RenderServerError
from fleet_tools.perception.camera_view import CameraView
from fleet_tools.perception.display import HEIGHT, THIRD, WIDTH, find_view, show_table
from fleet_tools.perception.measurement import Capture
from fleet_tools.perception.observer import Observer
from fleet_tools.perception.render_scene import VtkRenderer
from fleet_tools.robot.arm import Arm
from fleet_tools.sim.apply_scene import check_scene
from fleet_tools.sim.own_models import OwnModel, own_models, own_robot
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world_state import WorldState


class StagedEnv(RecordedEnv):
    """An environment whose episode is on a stage; what is public of it beside Gymnasium's methods.

    Attributes:
        task: The task file's content, with the robot's numbers where the file leaves them to it.
        robot: The arm.
        meshcat: The viewer of the render mode "human"; None in other modes.
    """

    task: TaskConfig
    robot: Arm
    meshcat: Meshcat | None

    _stage: Stage
    _observables: Mapping[str, Observable]
    _observer: Observer
    _display: VtkRenderer | None
    _episode: EpisodeState | None = None
    _watcher: Callable[[Simulation], None] | None = None

    def own_models(self) -> dict[OwnModel, Path]:
        """Returns the models beside the package's, see `RecordedEnv.own_models`."""
        return own_models(self.task) | own_robot(self.robot)

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

    def objects_done(self) -> int:
        """Returns how many objects of the scene are done; the next one is in use.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[0].objects_done

    def handling(self) -> Handling:
        """Returns how the task was handled so far in this episode.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[0].handling

    def verdicts(self) -> dict[str, Verdict]:
        """Returns the present verdict of each success predicate, by its place in the task file.

        None holds once the object is lost.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running()[0].verdicts()

    def find_view(self, camera: str = THIRD, size: tuple[int, int] = (WIDTH, HEIGHT)) -> CameraView:
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

    def image(self, view: CameraView) -> np.ndarray:
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
            episode.handling,
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
        self._stage.show_object(simulation)
        episode = self._episode = replace(
            episode,
            measurement=self._observer.measure(simulation, scene, state.shown),
            initial=episode.initial if state.initial is None else state.initial,
            objects_done=simulation.objects_done,
            outcome=state.outcome,
            steps_held=state.steps_held,
            success_once=state.success_once,
            handling=state.handling,
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

    def _running(self) -> tuple[EpisodeState, Simulation]:
        if self._episode is None or self._stage.simulation is None:
            raise EpisodeOverError("No episode has begun; call reset().")
        return self._episode, self._stage.simulation

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

    def _begin(self, scene: Scene) -> tuple[Simulation, EpisodeState]:
        """Resets the simulation to a scene.

        There is no episode until the caller has finished the one that is returned.
        """
        self._require_viewer()
        self._episode = None
        simulation = self._stage.begin(scene)
        if self.meshcat is not None:
            show_table(self.meshcat, scene)
        measurement = self._observer.measure(simulation, scene)
        episode = EpisodeState(self.task, scene, measurement.state, measurement)
        workspace = self.task.workspace
        if lost := [name for name, p_W in simulation.link_places() if not workspace.contains(p_W)]:
            raise ConfigError(
                f"The scene of the task {self.task.name!r} begins with links of the object outside "
                f"the workspace, {workspace}: {', '.join(lost)}. Move the object, or set "
                f"`workspace` in the task file."
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
        self._stage.show_object(simulation)
        measured = self._observer.measure(simulation, episode.scene, earlier)
        return episode.with_next_object(measured)

    def _observe(self, episode: EpisodeState) -> Observation:
        self.observed = observe(self._observables, episode.measurement)
        return self.observed

    def _info(self, episode: EpisodeState, verdicts: dict[str, Verdict]) -> dict[str, Any]:
        return episode.info(verdicts, self._observer.camera_info(episode.measurement))
