"""Success of a served policy as a function of delay: `python -m examples.delayed_robot.robot`.

A server process holds the policy; this process holds the simulator as if it were the arm, and asks
the policy over the socket. Delay, jitter and losses are injected in simulated time: an action is
executed a number of control steps after its observation.
"""

import json
import multiprocessing
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from examples.delayed_robot.link import DelayedPolicy, Link
from examples.outside_policy.servo import make_policy
from fleet_tools.config.values import Count, CountOrZero
from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.envs.recorded_env import interface_of
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.remote_policy import RemotePolicy
from fleet_tools.policies.wire_messages import Hello
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.storage.atomic_files import atomic_write
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import wilson_interval

LINKS: dict[str, dict[str, Any]] = {
    "steady": {},
    "jitter of 0 to 2 steps": {"jitter_steps": 2},
    "30% lost": {"loss": 0.3},
    "waits for each action": {"waits": True},
}
"""Links by their names in the figure."""


class RobotOptions(cli.Options):
    """Measures the success of the servo, served by another process, as a function of delay.

    The same scenes are run with every link. Without delay and losses the actions are those of the
    policy in process, which is checked.
    """

    scenes: Count = 12
    """Number of scenes, of all splits."""
    seed: CountOrZero = 1000
    """Seed of the first scene."""
    longest_delay: CountOrZero = 5
    """Longest delay, control steps of 1/6 s."""
    output: Path = Path("runs/delayed_robot")
    """Folder of delay.json and delay.png."""


def _serve(ready: Connection) -> None:
    env = EnvSpec.of(task="hammer").make_tool_use()
    interface = interface_of(env)
    hello = Hello(
        policy="servo",
        blueprint_digest="",
        content_digest="",
        observation=describe_observation(interface),
        action=describe_action(interface),
        control_period_s=1.0 / interface.metadata["render_fps"],
    )
    with (
        closing(env),
        PolicyServer(Served(hello, lambda: make_policy(env))) as server,
    ):
        ready.send(server.url)
        server.serve_forever()


@contextmanager
def _server() -> Iterator[str]:
    """Serves the policy from a process of its own; yields the address."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def successes(env: ToolUseEnv, policy: RemotePolicy, link: Link, seeds: range) -> int:
    """Returns the number of scenes in which a policy succeeds behind a link."""
    found = 0
    for seed in seeds:
        delayed = DelayedPolicy(policy, link, np.random.default_rng(seed))
        found += rollout(env, delayed, seed=seed).outcome == SUCCESS
    return found


def save_figure(curves: Mapping[str, list[int]], scenes: int, path: Path) -> None:
    """Draws success rates over delays, with 95% intervals (Wilson's)."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context("default"), atomic_write(path) as aside:
        figure = Figure((6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for number, (name, counts) in enumerate(curves.items()):
            rates = np.array(counts) / scenes
            low, high = np.transpose([wilson_interval(count, scenes) for count in counts])
            delays = np.arange(len(counts)) + 0.06 * (number - 1.5)
            errors = np.abs([rates - low, high - rates])
            axes.errorbar(delays, rates, errors, fmt="o-", capsize=2, markersize=4, label=name)
        axes.set_xlabel("delay, control steps of 1/6 s")
        axes.set_ylabel(f"success rate, {scenes} scenes")
        axes.set_ylim(-0.03, 1.03)
        axes.set_xticks(range(max(map(len, curves.values()))))
        axes.legend(frameon=False)
        figure.savefig(aside, dpi=150, format="png")


def _measure(options: RobotOptions) -> int:
    seeds = range(options.seed, options.seed + options.scenes)
    env = EnvSpec.of(task="hammer", split="all").make_tool_use()
    with _server() as url:
        policy = RemotePolicy(url, env)
        here = rollout(env, make_policy(env), seed=options.seed)
        there = rollout(
            env, DelayedPolicy(policy, Link(), np.random.default_rng(0)), seed=options.seed
        )
        same = here.actions.tobytes() == there.actions.tobytes()
        curves: dict[str, list[int]] = {}
        for name, kind in LINKS.items():
            curves[name] = []
            for delay in range(options.longest_delay + 1):
                link = Link(delay_steps=delay, **kind)
                curves[name].append(successes(env, policy, link, seeds))
                if not (options.quiet or options.json_output):
                    print(f"{name}, delay {delay}: {curves[name][-1]} of {len(seeds)}", flush=True)
        policy.close()
    summary = {
        "task": "hammer",
        "policy": "examples.outside_policy.servo:make_policy",
        "first_seed": options.seed,
        "scenes": options.scenes,
        "same_actions_without_delay": same,
        "successes": curves,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    with atomic_write(options.output / "delay.json") as aside:
        aside.write_text(json.dumps(summary, indent=1) + "\n")
    save_figure(curves, options.scenes, options.output / "delay.png")
    options.report(summary, lambda: f"the same actions without delay as in process: {same}")
    return cli.OK if same else cli.FAILED


PROGRAM = cli.Program(
    "robot", cli.Command(RobotOptions, _measure), launcher="python -m examples.delayed_robot."
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
