"""Episodes by a person, one scene after another: saved, discarded, or begun again."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.attempts import attempt_record, scene_seed, verified
from fleet_tools.dataset.dataset_folder import DatasetWriter
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.envs.outcomes import DISCARDED, SIMULATION_ERROR, SUCCESS, WORKER_ERROR
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import DiskError
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import Attempt, attempt, rollout
from fleet_tools.studio.teleoperation.devices import Inputs, Request
from fleet_tools.studio.teleoperation.display import TeleoperationDisplay
from fleet_tools.studio.teleoperation.operator_policy import FRAME_S, OperatorPolicy, RealTime


class TeleoperationSession:
    """A person who adds episodes to a dataset.

    Attempt k begins in the scene that attempt k of a collection with the same seed has. Saved
    episodes are stored at once; discarded ones are counted, as the outcome "discarded".

    Args:
        env: The environment of the dataset.
        writer: Writer of the dataset, which may hold some episodes already.
        pace: Decides when control steps are due.
        display: Shows the environment, and has the devices.
        episodes: Number of successful episodes that the dataset is to hold; None for no end.
        verify: Whether a success is run again from its actions before it counts.

    Attributes:
        inputs: The devices.
        url: Address of the page.
    """

    def __init__(
        self,
        env: ToolUseEnv,
        writer: DatasetWriter,
        pace: RealTime,
        display: TeleoperationDisplay,
        episodes: int | None = None,
        verify: bool = False,
    ) -> None:
        self._env, self._writer, self._pace = env, writer, pace
        self._display, self._episodes, self._verify = display, episodes, verify
        self.inputs, self.url = display.inputs, display.url
        self._operator = OperatorPolicy(
            self.inputs, env.action_scale, pace, self._show, self._show_between
        )
        self._interrupted: Callable[[], bool] = lambda: False

    @property
    def complete(self) -> bool:
        """Whether the dataset holds as many successful episodes as requested."""
        successes = sum(record.success for record in self._writer.records)
        return self._episodes is not None and successes >= self._episodes

    def run(
        self,
        after_each: Callable[[AttemptRecord], None] = lambda record: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Lets the person act until the dataset is complete.

        Args:
            after_each: Called with the record of each attempt that was saved or discarded.
            interrupted: Whether Ctrl-C came, which is asked between control steps; one that is
                raised anywhere can be caught by Drake or by a library.

        Raises:
            KeyboardInterrupt: It came.
            FleetToolsError: No episode can begin in this environment.
        """
        self._interrupted = interrupted
        while not self.complete:
            self._end_if_interrupted()
            self._store(*self._attempt(self._next_attempt()))
            self._tell_counts()
            after_each(self._writer.records[-1])
        self._display.session(phase="complete")

    def _attempt(self, number: int) -> tuple[AttemptRecord, bytes | None]:
        """Returns the record of an attempt, and its episode's file if it was saved."""
        seed = scene_seed(self._writer.header.seed, number)
        self._operator.retries = 0
        self._tell_counts()
        while True:
            self._display.session(attempt=number, seed=seed, outcome=None, error=None)
            result = attempt(lambda: rollout(self._env, self._operator, seed=seed))
            request = self._operator.request or self._ask(result)
            if request != "retry":
                break
            self._operator.retries += 1
        if request == "discard":
            return attempt_record(self._writer.header.seed, number, _discarded(result)), None
        if self._verify and result.episode is not None and result.outcome == SUCCESS:
            self._display.session(phase="verifying")
            result = _attempt_of(verified(self._env, result.episode), result.seconds)
        record = attempt_record(self._writer.header.seed, number, result)
        record = record.model_copy(update={"verified": self._verify and record.success})
        episode = result.episode
        return record, None if episode is None else episode_file.to_bytes(
            episode, number, self._writer.header.images
        )

    def _store(self, record: AttemptRecord, content: bytes | None) -> None:
        """Stores an attempt; while the disk has no room, what the person did waits for it."""
        while True:
            self._display.session(phase="saving")
            try:
                return self._writer.add(record, content)
            except DiskError as error:
                print(f"Not saved: {error}", file=sys.stderr, flush=True)
                self.inputs.clear()
                self._display.session(phase="unsaved", error=str(error))
            while self.inputs.take_request() != "save":
                self._end_if_interrupted()
                self.inputs.wait(FRAME_S)

    def _ask(self, result: Attempt) -> Request:
        """Waits for what is to become of an episode that has ended."""
        error = None if result.error is None else result.error[:300]
        self.inputs.clear()
        shown = result.outcome not in (SIMULATION_ERROR, WORKER_ERROR)
        if shown:
            self._display.step()
        self._display.session(phase="ended", outcome=result.outcome, error=error)
        while (request := self.inputs.take_request()) is None:
            self._end_if_interrupted()
            if shown:
                self._display.between(1.0)
            self.inputs.wait(FRAME_S)
        return request

    def _show(self) -> None:
        self._end_if_interrupted()
        self._display.step()

    def _show_between(self, fraction: float) -> None:
        self._end_if_interrupted()
        factor = self._pace.real_time_factor
        self._display.session(
            phase=self._pace.phase, real_time_factor=None if factor is None else round(factor, 2)
        )
        self._display.between(fraction)

    def _end_if_interrupted(self) -> None:
        if self._interrupted():
            raise KeyboardInterrupt

    def _tell_counts(self) -> None:
        records = self._writer.records
        self._display.session(
            task=self._writer.header.task.name,
            folder=str(self._writer.folder),
            stored=sum(record.file is not None for record in records),
            successes=sum(record.success for record in records),
            discarded=sum(record.outcome == DISCARDED for record in records),
            requested=self._episodes,
        )

    def _next_attempt(self) -> int:
        done = {record.attempt for record in self._writer.records}
        return next(k for k in range(len(done) + 1) if k not in done)


@contextlib.contextmanager
def open_session(
    env: ToolUseEnv,
    writer: DatasetWriter,
    *,
    port: int = 0,
    episodes: int | None = None,
    verify: bool = False,
    make_pace: Callable[[Inputs, float], RealTime] = RealTime,
) -> Iterator[TeleoperationSession]:
    """Opens a session, see `TeleoperationSession`; at its end, page and cameras are closed.

    Args:
        env: The environment of the dataset.
        writer: Writer of the dataset.
        port: Port of the page; 0 takes a free one.
        episodes: Number of successful episodes.
        verify: Whether a success is run again.
        make_pace: Makes what decides when steps are due, from the devices and the duration of a
            step, s.

    Raises:
        ConfigError: The port is taken.
        MissingLibraryError: A library is absent.
    """
    display = TeleoperationDisplay(env, writer.header.local_spec(), port)
    with contextlib.closing(display):
        pace = make_pace(display.inputs, 1.0 / env.metadata["render_fps"])
        yield TeleoperationSession(env, writer, pace, display, episodes, verify)


def _discarded(result: Attempt) -> Attempt:
    """Returns an attempt whose episode the person did not want, however it had ended."""
    ended = f"discarded by the person; it had ended as {result.outcome}"
    episode = None if result.episode is None else replace(result.episode, outcome=DISCARDED)
    return Attempt(episode, DISCARDED, ended, result.seconds)


def _attempt_of(episode: Episode, seconds: float) -> Attempt:
    return Attempt(episode, episode.outcome, episode.error, seconds)
