"""Meta-World: `python -m fleet_tools.baselines.metaworld collect --tasks mt10 --episodes 50`.

`train`, `fleet` and `sweep` of the same package take the datasets like datasets of tool use.
"""

import contextlib
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

from fleet_tools.baselines.metaworld.expert import EXPERT
from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, Seed
from fleet_tools.parallel.workers import WorkerOptions
from fleet_tools.policies.sources import PolicyName, PolicySource, find_policy
from fleet_tools.utils import cli


class ObservationOptions(OptionGroup):
    """Observations."""

    obs_mode: Literal["state", "features"] | None = None
    """Observations: the state, or features of an image (default: the policy's own)."""
    resnet_weights: Path | None = None
    """Safetensors file with torchvision's weights of ResNet-18, for features (default: random
    weights, the encoder "resnet18_random")."""

    def env_kwargs(self, policy: PolicySource) -> dict[str, Any]:
        """Returns the keyword arguments of an environment, as datasets store them.

        Raises:
            ConfigError, CheckpointError: The weights cannot be used, see `encoder.open_encoder`.
        """
        from fleet_tools.baselines.metaworld.encoder import open_encoder
        from fleet_tools.errors import ConfigError

        learned, weights = policy.env_kwargs, self.resnet_weights
        if (self.obs_mode or learned.get("obs_mode", "state")) != "features":
            if weights is not None:
                raise ConfigError("--resnet-weights is used only with --obs-mode features.")
            return {}
        kwargs: dict[str, Any] = {"obs_mode": "features"}
        kwargs["encoder"] = open_encoder(learned.get("encoder"), weights).name
        if weights is not None:
            kwargs["resnet_weights"] = str(weights.absolute())
        return kwargs


class MetaWorldCollectOptions(cli.Options):
    """Collects demonstrations of Meta-World's tasks, a dataset for each, or resumes it.

    Exit codes:
    0: all datasets hold as many episodes as requested.
    1: the limit of attempts, 10 times as many plus 10, was reached first for some task.
    2: it cannot begin.
    130: Ctrl-C, which waits for the episodes in progress.
    """

    episodes: Count
    """Number of successful episodes of each dataset."""
    tasks: str = "mt10"
    """The tasks of one policy: mt10, mt50, or names with commas between them. Observations encode
    the task among these, so datasets of different sets do not fit together."""
    only: tuple[str, ...] = ()
    """Tasks of these to collect (default: all)."""
    policy: PolicyName = EXPERT
    seed: Seed = 0
    """Seed of the datasets."""
    output: Path | None = None
    """Folder of the datasets' folders (default: data/TASKS)."""
    keep_failures: bool = False
    """Store failed episodes, too, marked as such."""
    verify: bool = False
    """Replay each success from its actions before it counts, and compare every bit."""
    observation: ObservationOptions = ObservationOptions()
    workers: WorkerOptions = WorkerOptions()


class MetaWorldEvaluateOptions(cli.Options):
    """Evaluates a policy in scenes of Meta-World's tasks that no dataset contains.

    Exit codes:
    0: all episodes were run, whether they succeeded or not.
    1: an episode ended by an error of the simulator, of the policy or of its process.
    2: it cannot begin.
    130: Ctrl-C.
    """

    policy: PolicyName
    tasks: str = "mt10"
    """Tasks, named as in the policy's training: mt10, mt50, or names."""
    scenes: Count = 20
    """Number of scenes of each task."""
    observation: ObservationOptions = ObservationOptions()
    workers: WorkerOptions = WorkerOptions()


class MetaWorldViewOptions(cli.Options):
    """Writes a video of a policy in one of Meta-World's tasks.

    Exit codes:
    0: the video is complete.
    2: it cannot begin.
    130: Ctrl-C.
    """

    task: str
    """Name of the task, such as push-v3."""
    output: Path
    """The video, an MP4 file, in real time."""
    policy: PolicyName = EXPERT
    tasks: str = "mt10"
    """Tasks, named as in the policy's training."""
    episodes: Count = 1
    """Number of episodes."""
    seed: Seed = 0
    """Seed of the first scene; the others follow."""
    observation: ObservationOptions = ObservationOptions()


def _collect(options: MetaWorldCollectOptions) -> int:
    from fleet_tools.baselines.metaworld.tasks import env_spec, task_set
    from fleet_tools.dataset.attempts import make_attempts
    from fleet_tools.dataset.collection import collect, describe_collection, exit_code
    from fleet_tools.errors import require_name
    from fleet_tools.rollouts.agreement import REPEAT

    members = task_set(options.tasks)
    for name in options.only:
        require_name(f"task of {options.tasks}", name, members)
    folder = options.output or Path("data") / options.tasks
    with contextlib.redirect_stdout(sys.stderr):  # a policy's module may print
        policy = find_policy(options.policy)
        kwargs = options.observation.env_kwargs(policy)
        headers = [
            describe_collection(
                env_spec(task, options.tasks, **kwargs), policy, options.seed, options.keep_failures
            )
            for task in options.only or members
        ]
    summaries: list[dict[str, Any]] = []
    code = cli.OK
    for header in headers:
        collected = collect(
            folder / header.task.name,
            header,
            partial(make_attempts, policy=policy, verify=options.verify),
            options.episodes,
            options.workers,
            last_job=REPEAT,
            quiet=options.quiet,
        )
        summaries.append(collected.summary)
        code = max(code, exit_code(collected))
        if collected.failure is not None or collected.interrupted:
            break
    options.report({"output": str(folder), "tasks": summaries}, lambda: _table(summaries))
    return code


def _view(options: MetaWorldViewOptions) -> int:
    from fleet_tools.baselines.metaworld.env import MetaWorldEnv
    from fleet_tools.policies.policy import make_guarded
    from fleet_tools.studio.pictures.filming import require_video, write_video
    from fleet_tools.studio.pictures.recording import PlannedEpisode, render_frame, run_observed

    require_video()
    with contextlib.ExitStack() as resources:
        resources.enter_context(contextlib.redirect_stdout(sys.stderr))
        policy = find_policy(options.policy)
        kwargs = options.observation.env_kwargs(policy)
        env = MetaWorldEnv(options.task, options.tasks, render_mode="rgb_array", **kwargs)
        resources.callback(env.close)
        outcomes: list[str] = []
        frames: list[Any] = []
        steps = count()

        def add_frame(_: dict[str, Any]) -> None:
            if next(steps) % _EVERY == 0:
                frames.append(render_frame(env))

        for seed in range(options.seed, options.seed + options.episodes):
            planned = PlannedEpisode(options.task, make_guarded(policy, env, seed), seed=seed)
            outcomes.append(run_observed(env, planned, add_frame).outcome)
        write_video(options.output, frames, env.metadata["render_fps"] // _EVERY)
    options.report(
        {"output": str(options.output), "outcomes": outcomes},
        lambda: f"{options.output}: {', '.join(outcomes)}",
    )
    return cli.OK


def _evaluate(options: MetaWorldEvaluateOptions) -> int:
    from fleet_tools.baselines.metaworld.evaluation import as_text, evaluate

    with contextlib.redirect_stdout(sys.stderr):
        policy = find_policy(options.policy)
        summary = evaluate(
            policy,
            options.tasks,
            options.scenes,
            options.workers,
            options.observation.env_kwargs(policy),
            quiet=options.quiet,
        )
    options.report(summary, lambda: as_text(summary))
    return cli.FAILED if any(each["errors"] for each in summary["tasks"].values()) else cli.OK


def _table(summaries: list[dict[str, Any]]) -> str:
    width = max(len(summary["task"]) for summary in summaries)
    lines = [f"{'task':<{width}}  episodes  succeeded of attempts  steps (mean)   MB"]
    for summary in summaries:
        steps = summary["episode_steps"]
        lines.append(
            f"{summary['task']:<{width}}  {summary['stored_episodes']:8}  "
            f"{summary['successes']:9} of {summary['attempts']:8}  "
            f"{steps['mean'] if steps else 0:12.1f}  {summary['bytes'] / 1e6:4.1f}"
        )
    return "\n".join(lines)


_EVERY = 4
"""Control steps from one frame of a video to the next, of 80 a second."""

PROGRAM = cli.Program(
    "baselines.metaworld",
    {
        "collect": cli.Command(MetaWorldCollectOptions, _collect),
        "evaluate": cli.Command(MetaWorldEvaluateOptions, _evaluate),
        "view": cli.Command(MetaWorldViewOptions, _view),
    },
    "Meta-World's tasks as datasets for the same learners and fleets.",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
