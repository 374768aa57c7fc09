"""An evaluation from its beginning to its scores."""

import contextlib
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fleet_tools.config.cameras import IDEAL
from fleet_tools.dataset.carried_models import models_of_all
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.policy_provenance import PolicyProvenance
from fleet_tools.evaluation.protocol import Protocol, Trial, protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import load_protocol, with_task
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, Result
from fleet_tools.evaluation.result_folder import EvaluationWriter
from fleet_tools.evaluation.trial import lost_trial, make_trials
from fleet_tools.parallel.workers import TRIES, LostJob, WorkerOptions
from fleet_tools.policies.confined import find_policy_apart
from fleet_tools.policies.sources import PolicySource
from fleet_tools.rollouts.agreement import REPEAT
from fleet_tools.storage.locked_folder import AppendLog
from fleet_tools.storage.provenance import Machine, installed_packages

BEGUN = "begun.txt"
"""File of an evaluation's folder with a line for each time that one of its trials began."""


def evaluate_policy(
    config: EvaluationConfig, output: str | Path, workers: WorkerOptions | None = None
) -> Evaluation:
    """Evaluates a policy, or resumes an interrupted evaluation of it.

    Args:
        config: The policy and the trials.
        output: Folder of the evaluation; created if it does not exist.
        workers: Number, time limit and place of worker processes; the defaults if None.

    Returns:
        The result with its scores, and all episodes.

    Raises:
        FleetToolsError: There is no such policy, protocol, task or split; or the folder holds
            something else.
    """
    workers = workers or WorkerOptions()
    policy, result, trials = describe(config, limit_s=workers.timeout)
    with EvaluationWriter(output, result) as writer:
        run_trials(writer, policy, trials, workers)
        return writer.finish()


def describe(
    config: EvaluationConfig,
    command: str = "",
    limit_s: float | None = None,
    protocol: Protocol | None = None,
) -> tuple[PolicySource, Result, list[Trial]]:
    """Describes an evaluation that is to be made, after checking that it can be.

    Args:
        config: The policy and the trials.
        command: Command line, if any.
        limit_s: Time limit of the import of a policy's module, s.
        protocol: A protocol that has no name; None for the one that `config` names.

    Returns:
        The policy's source, the result without scores, and the requested trials, in an order that
        tells code of others nothing.

    Raises:
        FleetToolsError: There is no such policy, protocol, task or split, the policy's
            environment cannot be made here, a checkpoint cannot act in a task, or it takes turns
            with the expert.
    """
    policy = find_policy_apart(config.policy, config.track, limit_s)
    protocol = protocol or load_protocol(config.protocol, config.level)
    task = config.tool
    if config.task is not None:
        protocol, task = with_task(protocol, config.task)
    trials = protocol.trials(task, config.split, config.scenes)
    if policy.is_foreign:
        random.SystemRandom().shuffle(trials)
        trials.sort(key=lambda trial: protocol.tasks.index(trial.task))
    sensors = config.sensors or protocol.sensors or IDEAL
    observed = config.obs_mode or str(policy.env_kwargs.get("obs_mode", "state"))
    protocol.require_sensors(sensors, observed)
    provenance = PolicyProvenance.of(
        policy,
        config.name,
        config.obs_mode,
        config.training_seed,
        config.track,
        sensors,
        config.robot,
    )
    for name in dict.fromkeys(trial.task for trial in trials):
        env = protocol.make_env(name, trusted=True, **provenance.env_kwargs)  # the user named them
        with contextlib.closing(env):
            _require_acting(policy, env)
    digests = task_digests(protocol)
    own = models_of_all(map(protocol.load_task, protocol.task_files))
    result = Result(
        protocol=protocol,
        task_digests=digests,
        protocol_digest=protocol_digest(protocol, digests),
        policy=provenance,
        packages=installed_packages(),
        machine=Machine.here(),
        command=command,
    ).with_models(own)
    return policy, result, trials


def _require_acting(policy: PolicySource, env: ToolUseEnv) -> None:
    """Checks that a checkpoint can act in a task; code of others is not run here for that."""
    if policy.kind in ("checkpoint", "remote"):
        try:
            policy.make(env)
        except FleetToolsError as error:
            raise PolicyError(
                f"{policy} cannot act in the task {env.task.name!r}: {error} Give the task that it "
                "was trained for with --tool or --task."
            ) from error


def run_trials(
    writer: EvaluationWriter,
    policy: PolicySource,
    trials: Sequence[Trial],
    workers: WorkerOptions,
    *,
    after_each: Callable[[EpisodeResult], None] = lambda episode: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Runs the trials whose results are missing, and stores their results.

    Args:
        writer: Writer of an evaluation that `describe` has described: the functions that its task
            files name are run.
        policy: The policy's source.
        trials: Trials of its protocol.
        workers: Number, time limit and place of worker processes.
        after_each: Called with each new result.
        stop: Whether to begin no more trials.

    Raises:
        FleetToolsError: An error that affects every trial.
        OSError: The disk is full or gone; results so far are stored.
    """
    done = {episode.key for episode in writer.records}
    with _Begun(writer) as begun, writer.marking():

        def store(trial: Trial, result: EpisodeResult | LostJob) -> None:
            if isinstance(result, LostJob):
                result = lost_trial(trial, result.reason)
            episode = result.model_copy(update={"tries": begun.tries(trial)})
            writer.append(episode)
            after_each(episode)

        missing = deque(trial for trial in trials if trial.key not in done)
        if policy.is_foreign:
            for trial in [each for each in missing if begun.tries(each) >= TRIES]:
                missing.remove(trial)
                store(trial, LostJob(f"evaluate was killed in it, {begun.tries(trial)} times"))
        results = workers.run(
            lambda: missing.popleft() if missing and not stop() else None,
            partial(make_trials, writer.result, policy, trusted=True, limit_s=workers.timeout),
            REPEAT,
            tries=1 if policy.is_foreign else TRIES,
            before_each=begun.add,
        )
        with contextlib.closing(results):
            for trial, result in results:
                if trial != REPEAT:
                    store(trial, result)


class _Begun:
    """Counts on disk how often trials were begun, since a policy may kill whoever counts.

    Its file is removed at its end, unless a trial was begun whose result is not stored.

    Args:
        writer: The evaluation.
    """

    def __init__(self, writer: EvaluationWriter) -> None:
        self._writer, self._path = writer, writer.folder / BEGUN
        self._path.touch()
        self._log = AppendLog(self._path)
        self._lines = Counter(self._path.read_text(errors="replace").splitlines())

    def add(self, trial: Trial) -> None:
        """Counts a trial that begins now."""
        self._log.append(_line(trial))
        self._lines[_line(trial)] += 1

    def tries(self, trial: Trial) -> int:
        """Returns how often a trial was begun."""
        return self._lines[_line(trial)]

    def __enter__(self) -> "_Begun":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Releases the file."""
        self._log.close()
        if self._lines.keys() <= {_line(episode) for episode in self._writer.records}:
            self._path.unlink()


def _line(trial: Trial) -> str:
    return "/".join(map(str, trial.key))
