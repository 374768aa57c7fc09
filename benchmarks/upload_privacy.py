"""Disclosure of a robot's data by second moments: `python benchmarks/moment_privacy.py FLEET`.

An adversary reads one robot's answer, and tries to find out whether an episode is among the robot's
(membership), and to reconstruct observations. Members are the robot's episodes, and others are
held-out episodes of the same tasks. For comparison, the same is tried with the weights that the
robot sends anyway, by the loss of its network.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from scaffold import main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import FLEET, load_progress
from fleet_tools.baselines.policies.network import PolicyNetwork
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.config.values import Count
from fleet_tools.dataset.samples import Samples
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import auc

NOISES = (0.0, 1e-3, 1e-2, 1e-1)
COLUMNS = ("episodes", "noise", "membership by moments", "by weights", "error of a step")


class PrivacyOptions(cli.Options):
    """Tries to read a robot's data from the second moments of its first layer's inputs.

    Membership is the area under the receiver operating characteristic over episodes; .5 reveals
    nothing. An adversary knows all but one step of the robot, and guesses its observation. The
    error is the distance from the guess, relative to the distance from the mean. Figures are means
    over
    robots.
    """

    fleet: Annotated[Path, Positional, arg(metavar="FLEET")]
    """Folder of a fleet of one round, of `python -m fleet_tools.baselines.fleet`."""
    episodes: tuple[Count, ...] = (1, 10, 100)
    """Numbers of a robot's episodes in the moments, besides all of them."""


def _measure(options: PrivacyOptions) -> int:
    plan = FleetPlan.of(FLEET.read_document(options.fleet).config)
    attacked: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = []
    for robot, weights in load_progress(options.fleet).robot_weights.items():
        assignment = plan.assignments[robot]
        samples = Samples(assignment.data, observations=list(plan.blueprint.observation))
        members = _episodes(plan, samples.subset(assignment.episodes), weights)
        tasks = {episode["task"] for episode in members}
        others = [each for each in _episodes(plan, plan.held_out, weights) if each["task"] in tasks]
        attacked.append((members, others))
    found = (
        {"episodes": count, "noise": noise}
        | _means([_attack(*pair, count, noise) for pair in attacked])
        for count in (*options.episodes, None)
        for noise in NOISES
    )
    report_rows(options, COLUMNS, found, _cells, robots=len(attacked))
    return cli.OK


def _means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _episodes(plan: FleetPlan, samples: Samples, weights: Any) -> list[dict[str, Any]]:
    """Returns the scaled states and the network's loss of each episode."""
    network = plan.blueprint.create().eval()
    assert isinstance(network, PolicyNetwork)
    network.load_state_dict(weights)
    found = []
    for number, episode in enumerate(samples.episodes):
        trajectories = Trajectories(samples.subset([number]), plan.blueprint)
        (items,) = trajectories.order(10**9, None)
        batch = trajectories.batch(items)
        with torch.no_grad():
            actions, _ = network(batch.observations)
            x = network.scaled_state(batch.observations).flatten(0, 1).double().numpy()
        loss = float((actions - batch.actions.flatten(2)).square().mean())
        found.append({"task": episode.task, "x": x, "loss": loss})
    return found


def _attack(
    members: Sequence[dict[str, Any]],
    others: Sequence[dict[str, Any]],
    count: int | None,
    noise: float,
) -> dict[str, float]:
    """Returns an adversary's findings from the moments of `count` of a robot's episodes."""
    generator = np.random.default_rng(0)
    chosen = [members[i] for i in generator.permutation(len(members))[:count]]
    X = np.concatenate(
        [np.pad(each["x"], ((0, 0), (0, 1)), constant_values=1.0) for each in chosen]
    )
    G = (X.T @ X / len(X)).astype(np.float32).astype(float)
    noisy = G + noise * np.sqrt(np.square(G).mean()) * _symmetric(generator, len(G))
    values, vectors = np.linalg.eigh(noisy)
    inverse = vectors / np.maximum(values, 1e-6 * values.max()) @ vectors.T

    def leverage(episode: dict[str, Any]) -> float:
        x = _with_ones(episode["x"])
        return float(np.einsum("ti,ij,tj->t", x, inverse, x).mean())

    def membership(score: Callable[[dict[str, Any]], float]) -> float:
        return auc([-score(each) for each in chosen], [-score(each) for each in others])[0]

    return {
        "by_moments": membership(leverage),
        "by_weights": membership(lambda episode: episode["loss"]),
        "error": _reconstruction_error(X, noisy),
    }


def _reconstruction_error(X: np.ndarray, noisy: np.ndarray) -> float:
    """Returns the median error of steps reconstructed by an adversary that knows all others."""
    generator = np.random.default_rng(1)
    errors = []
    for index in generator.choice(len(X), min(50, len(X)), replace=False):
        rest = len(X) * noisy - (X.T @ X - np.outer(X[index], X[index]))
        values, vectors = np.linalg.eigh(rest)
        guess = np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
        guess = guess * np.sign(guess[-1])
        spread = np.linalg.norm(X[index] - X.mean(0)) or 1.0
        errors.append(np.linalg.norm(guess - X[index]) / spread)
    return float(np.median(errors))


def _with_ones(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, 1)), constant_values=1.0)


def _symmetric(generator: np.random.Generator, size: int) -> np.ndarray:
    upper = np.triu(generator.standard_normal((size, size)))
    return upper + np.triu(upper, 1).T


def _cells(row: dict[str, Any]) -> list[str]:
    shares = (f"{row[name]:.2f}" for name in ("by_moments", "by_weights"))
    return [str(row["episodes"] or "all"), f"{row['noise']:g}", *shares, f"{row['error']:.2g}"]


main = main_of(__file__, PrivacyOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
