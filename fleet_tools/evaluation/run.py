"""An evaluation from its beginning to its scores."""

import contextlib
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
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.policies.confined import find_policy_apart
from fleet_tools.policies.sources import PolicySource, find_policy
from fleet_tools.rollouts.agreement import REPEAT
from fleet_tools.storage.provenance import Machine, installed_packages


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
    policy, result, trials = describe(config)
    with EvaluationWriter(output, result) as writer:
        run_trials(writer, policy, trials, workers or WorkerOptions())
        return writer.finish()


def describe(
    config: EvaluationConfig, command: str = "", protocol: Protocol | None = None
) -> tuple[PolicySource, Result, list[Trial]]:
    """Describes an evaluation that is to be made, after checking that it can be.

    Args:
        config: The policy and the trials.
        command: Command line, if any.
        protocol: A protocol that has no name; None for the one that `config` names.

    Returns:
        The policy's source, the result without scores, and the requested trials.

    Raises:
        FleetToolsError: There is no such policy, protocol, task or split, the policy's
            environment cannot be made here, a checkpoint cannot act in a task, or it takes turns
            with the expert.
    """
    find = find_policy_apart if config.track == "observations" else find_policy
    policy = find(config.policy)
    protocol = protocol or load_protocol(config.protocol, config.level)
    task = config.tool
    if config.task is not None:
        protocol, task = with_task(protocol, config.task)
    trials = protocol.trials(task, config.split, config.scenes)
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
                f"{policy} cannot act in the task {env.task.name!r}: {error} Evaluate it with "
                "--tool or --task in the task that it has learned."
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
    missing = iter([trial for trial in trials if trial.key not in done])
    results = workers.run(
        lambda: None if stop() else next(missing, None),
        partial(make_trials, writer.result, policy, trusted=True),
        REPEAT,
    )
    with contextlib.closing(results), writer.marking():
        for trial, episode in results:
            if trial == REPEAT:
                continue
            if isinstance(episode, LostJob):
                episode = lost_trial(trial, episode.reason)
            writer.append(episode)
            after_each(episode)
