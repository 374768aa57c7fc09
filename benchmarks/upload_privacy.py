"""Membership and reconstruction attacks on robots' uploads: `python benchmarks/upload_privacy.py`.

    python benchmarks/upload_privacy.py experiments/budget/states.yaml --output runs/fleets

An adversary reads one robot's upload as it arrives at the server, after its rounding. It knows the
network and all messages. It tries to recognize the robot's episodes among held-out episodes of the
same tasks (membership), and to compute one step from all other steps of the robot (reconstruction).

    weights   the loss of an episode; and the gradient of all other steps, since training ends where
              gradients nearly cancel
    moments   the leverage of an episode's inputs, the largest along any axis; and the moments of
              all other steps
    mixture   the density of an episode's states; and the mean that is nearest to a state
    raw data  the nearest step
"""

import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic
import torch
from scaffold import main_of, report_rows
from scipy.sparse.linalg import eigsh
from tapped_fleets import TappedTransport, merge_once, robots_of
from tyro.conf import Positional, arg

from fleet_merging.moments.measurement import Target
from fleet_merging.moments.mixture import LIMIT, StateMixture, clusters
from fleet_merging.moments.rows import input_rows
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.query import LossQuery
from fleet_tools.baselines.experiments.arena import make_arena
from fleet_tools.baselines.experiments.fleets import PlannedFleet
from fleet_tools.baselines.experiments.form import MAX_SEEDS, load_experiment, planned_runs
from fleet_tools.baselines.federated.central import send
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.messages import Answer, LocalUpdate, Message
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.federated.rounds import messages_of
from fleet_tools.baselines.federated.transport import LocalTransport
from fleet_tools.baselines.policies.merged_checkpoints import network_like
from fleet_tools.baselines.policies.part_configs import LinearHeadConfig
from fleet_tools.baselines.training.demonstrations import Trajectories
from fleet_tools.baselines.training.loop import draws, imitation_losses
from fleet_tools.config.extends import EXTENDS
from fleet_tools.config.values import Count, load_text, load_yaml
from fleet_tools.config.yaml_text import parse_yaml
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import RawDataConfig, decode
from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli
from fleet_tools.utils.statistics import CRITICAL

COLUMNS = ("method", "upload", "kB", "membership", "error of a step", "nearest mean", "episodes")
WEIGHTS, MOMENTS, MIXTURE, RAW = "weights", "moments", "mixture", "raw data"
TRIED = 20
"""Number of a robot's steps that are reconstructed."""
RIDGE, RIDGE_OF_BITS, LEAST = 1e-7, 1e-4, 1e-12
"""Added to eigenvalues, against the rounding of exact and of coded answers, as attacks on budget's
data are strongest; and the least mean square."""


class PrivacyOptions(cli.Options):
    """Tries to read robots' data from their uploads, and prints a row for each kind of upload.

    Membership is the area under the receiver operating characteristic over episodes, with its 95%
    interval: .5 reveals nothing, 1 everything. The error of a step is relative to its distance from
    the mean: 0 is exact, and 1 no better than the mean. It is the median over steps, averaged over
    robots. Steps are inputs of a map, perhaps hidden units. Of mixtures, the nearest mean is the
    smallest distance of a mean to a state of the robot, as a fraction of the median distance
    between states. The last column is the smallest number of episodes behind a Gaussian.
    """

    fleets: Annotated[
        tuple[Path, ...], Positional, arg(metavar="FILE"), pydantic.Field(min_length=1)
    ]
    """Experiments on fleets that are merged once, such as experiments/budget/states.yaml, or
    configurations of single fleets; both in YAML."""
    output: Path
    """Folder of their results, as of `experiment`: trained networks are taken from there, and new
    ones are stored."""
    arms: tuple[str, ...] = ()
    """Names of arms (default: all)."""
    seeds: Count | None = None
    """Number of seeds (default: the experiment's)."""


@dataclass(frozen=True)
class AttackedFleet:
    """A fleet whose uploads are attacked.

    Attributes:
        arm: Name of its arm, or of its method.
        config: Its configuration.
        raw: Compression of raw data; None if robots send something else.
    """

    arm: str
    config: FleetConfig
    raw: RawDataConfig | None = None


@dataclass(frozen=True, eq=False)
class KnownEpisode:
    """An episode, as the adversary knows it.

    Attributes:
        task: Name of its task.
        data: The episode.
        holder: Answers queries as a robot with this episode alone.
    """

    task: str
    data: Trajectories
    holder: LocalDataHolder


@dataclass(frozen=True, eq=False)
class Upload:
    """Answers of one kind of a robot, as they arrive.

    Attributes:
        robot: Number of the robot.
        answers: Its messages and answers.
        size: Number of bytes.
    """

    robot: int
    answers: tuple[tuple[Any, Any], ...]
    size: int


def _measure(options: PrivacyOptions) -> int:
    torch.set_num_threads(1)
    report_rows(options, COLUMNS, _rows(options), _cells)
    return cli.OK


def _rows(options: PrivacyOptions) -> Iterator[dict[str, Any]]:
    by_arm: dict[str, list[AttackedFleet]] = defaultdict(list)
    for path in options.fleets:
        for each in _attacked(path, options.seeds):
            if each not in by_arm[each.arm] and each.arm in (options.arms or (each.arm,)):
                by_arm[each.arm].append(each)
    for arm, fleets in by_arm.items():
        of_kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for number, fleet in enumerate(fleets):
            for kind, found in attacks(fleet, options.output):
                of_kinds[kind] += [each | {"fleet": number} for each in found]
        for kind, found in of_kinds.items():
            yield {"method": arm, "upload": kind, **summary(found)}


def _attacked(path: Path, seeds: int | None) -> Iterator[AttackedFleet]:
    """Yields the fleets of an experiment's file, or the fleet of a configuration."""
    if not {"arms", EXTENDS} & set(parse_yaml(load_text(path), str(path)) or ()):
        config = load_yaml(FleetConfig, path)
        yield AttackedFleet(config.last_method or config.method, config)
        return
    experiment = load_experiment(path)
    arena = make_arena(experiment)
    for run in planned_runs(experiment):
        if run.is_reference or run.seed % MAX_SEEDS >= (seeds or experiment.seeds):
            continue
        if not isinstance(plan := arena.plan(run), PlannedFleet):
            raise ConfigError(f"{path} is no experiment on fleets of robots; give one.")
        yield AttackedFleet(plan.arm, plan.config, plan.raw)


def attacks(fleet: AttackedFleet, output: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields each kind of upload of a fleet, and an attack's findings for each robot.

    Findings are the "size", the scores of "strata" (see `membership`), and perhaps the "error" of a
    step, the "nearest" mean and the smallest number of "episodes" of a Gaussian.

    Args:
        fleet: The fleet.
        output: See `PrivacyOptions`.

    Raises:
        FleetToolsError: A merge fails.
    """
    plan = FleetPlan.of(fleet.config)
    members, others = known_episodes(plan)
    if fleet.raw is not None:
        yield RAW, _attacked_data(plan, fleet.raw, members, others)
        return
    for kind, uploads in uploads_of(plan, output).items():
        found = []
        for upload in uploads:
            own = members[upload.robot]
            score, facts = ATTACKS[kind](plan, upload, own)
            found.append({"size": upload.size, "strata": strata(own, others, score), **facts})
        yield kind, found


def uploads_of(plan: FleetPlan, output: Path) -> dict[str, list[Upload]]:
    """Returns the uploads of a fleet's robots, by kind, as the server gets them.

    Args:
        plan: The fleet.
        output: See `PrivacyOptions`.
    """
    config, heard = plan.config, list[tuple[int, Message, Answer]]()
    if config.last_method == "distillation" and "refit" not in config.last_options:
        options = {**config.last_options, "steps": 0}  # the server's training asks nothing
        plan = replace(plan, config=config.model_copy(update={"last_options": options}))

    def tap(robot: int, message: Message, answer: Answer) -> Answer:
        heard.append((robot, message, answer))
        return answer

    merge_once(plan, TappedTransport(robots_of(plan.assignments, output), tap))
    server = messages_of(plan, LocalTransport(plan.assignments), base=plan.first_base())
    kinds: dict[str, dict[int, Upload]] = defaultdict(dict)
    for robot, message, answer in heard:
        arrived, size = server.arrived(answer)
        kind = {LocalUpdate: WEIGHTS, StateMixture: MIXTURE}.get(type(arrived), MOMENTS)
        before = kinds[kind].get(robot) or Upload(robot, (), 0)
        answers = (*before.answers, (message, arrived))
        kinds[kind][robot] = Upload(robot, answers, before.size + size)
    return {kind: list(found.values()) for kind, found in kinds.items()}


def known_episodes(plan: FleetPlan) -> tuple[list[list[KnownEpisode]], list[KnownEpisode]]:
    """Returns the episodes of each robot, and those held out, each with a step to imitate."""
    blueprint, size = plan.blueprint, plan.config.training.batch_size
    network = blueprint.create().eval()

    def known(samples: Samples) -> list[KnownEpisode]:
        found = []
        for number, episode in enumerate(samples.episodes):
            if (one := samples.subset([number])).imitate.any():
                data = Trajectories(one, blueprint)
                holder = replace(local_data_holder(blueprint, data, size), model=network)
                found.append(KnownEpisode(episode.task, data, holder))
        return found

    every = Samples(plan.config.data, observations=list(blueprint.observation))
    own = [known(every.subset(each.episodes)) for each in plan.assignments]
    return own, known(plan.held_out)


# --- Membership -------------------------------------------------------------------------------

Score = Callable[[KnownEpisode], float]
"""A score of an episode, higher for likelier members."""

Stratum = tuple[Hashable, np.ndarray, np.ndarray]
"""A key, and the scores of members and of others; strata of one key have the same others."""


def strata(
    members: Sequence[KnownEpisode], others: Sequence[KnownEpisode], score: Score
) -> list[Stratum]:
    """Returns the scores of a robot's episodes and of held-out ones, by task."""
    found = []
    for task in sorted({each.task for each in members}):
        own, rest = (
            np.array([score(each) for each in some if each.task == task])
            for some in (members, others)
        )
        if len(rest):
            found.append((task, own, rest))
    return found


def membership(given: Sequence[Stratum]) -> tuple[float, float, float]:
    """Returns the area under the ROC curve within strata, and its 95% interval.

    Only episodes of one stratum are compared, so that the tasks' shares reveal nothing. Variances
    are by DeLong et al. (1988), "Comparing the Areas under Two or More Correlated Receiver
    Operating Characteristic Curves"; others of one key are shared. Equal scores count half.
    """
    shares = np.array([len(own) * len(rest) / (len(own) + len(rest)) for _, own, rest in given])
    shares = shares / shares.sum()
    area, variance = 0.0, 0.0
    of_others: dict[Hashable, Any] = defaultdict(float)
    for share, (key, own, rest) in zip(shares, given, strict=True):
        above = (np.sign(own[:, None] - rest) + 1) / 2
        area += share * above.mean()
        variance += share**2 * _variance(above.mean(1))
        of_others[key] = of_others[key] + share * above.mean(0)
    variance += sum(map(_variance, of_others.values()))
    width = CRITICAL * math.sqrt(variance)
    return area, max(0.0, area - width), min(1.0, area + width)


def _variance(numbers: np.ndarray) -> float:
    """Returns the variance of the mean of numbers."""
    return float(numbers.var(ddof=1)) / len(numbers) if len(numbers) > 1 else 0.0


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the findings over all robots of all fleets, see `attacks`."""

    def all_of(name: str) -> list[float]:
        return [each[name] for each in found if each.get(name) is not None]

    given = [
        ((each["fleet"], key), own, rest) for each in found for key, own, rest in each["strata"]
    ]
    area, low, high = membership(given)
    return {
        "bytes": float(np.mean(all_of("size"))),
        "membership": area,
        "low": low,
        "high": high,
        "error": float(np.mean(errors)) if (errors := all_of("error")) else None,
        "nearest": min(all_of("nearest"), default=None),
        "episodes": min(all_of("episodes"), default=None),
    }


# --- Weights ----------------------------------------------------------------------------------


def _attacked_weights(
    plan: FleetPlan, upload: Upload, own: Sequence[KnownEpisode]
) -> tuple[Score, dict[str, Any]]:
    """Attacks by an episode's loss (Yeom et al. 2018), and by gradients of steps."""
    ((_, update),) = upload.answers
    query = LossQuery(update.weights, None, gradient=False)

    def score(episode: KnownEpisode) -> float:
        answer: Any = episode.holder.answer(query)
        return -answer.loss

    return score, {"error": _error_by_gradients(plan, update.weights, own)}


def _error_by_gradients(plan: FleetPlan, weights: Any, own: Sequence[KnownEpisode]) -> float | None:
    """Returns the error of steps whose gradient cancels the others', as after perfect training.

    The gradient of one step by the first matrix has rank 1: its factor is the input.
    """
    first, head = plan.affine_maps[0], plan.blueprint.config.head
    if plan.blueprint.with_memory or not isinstance(head, LinearHeadConfig):
        return None
    network = plan.blueprint.create().eval()
    network.load_state_dict(weights)
    named = dict(network.named_parameters())

    def by_first(data: Trajectories, items: np.ndarray) -> np.ndarray:
        losses = imitation_losses(network, data.batch(items), head, draws(0, 0, 0))
        found = torch.autograd.grad(losses.sum(), list(named.values()), allow_unused=True)
        gradients = dict(zip(named, found, strict=True))
        return first.matrix(gradients)[0].numpy()

    total = sum(by_first(each.data, np.concatenate(each.data.order(1, None))) for each in own)
    steps = [(each.data, items) for each in own for items in each.data.order(1, None)]
    parts = [_rows_of(network, (weights,), each, (first.name,))[first.name] for each in own]
    X = np.concatenate(parts)
    chosen, guesses = _chosen(len(X)), []
    for number in chosen:
        left, *_ = np.linalg.svd(by_first(*steps[number]) - total)
        guesses.append(left[:, 0] / left[-1, 0])
    by_mean = [X.mean(0)] * len(chosen)
    return min(_median_error(each, X, chosen) for each in (guesses, by_mean))


def _whitening(matrix: np.ndarray, ridge: float) -> tuple[np.ndarray, float]:
    """Returns W with W W^T near the inverse of a positive matrix, and half its log determinant."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 0.0) + ridge
    return vectors / np.sqrt(values), float(np.log(values).sum() / 2)


def _ridge(config: FleetConfig) -> float:
    coded = config.uploads is not None and config.uploads.bits is not None
    return max(RIDGE_OF_BITS if coded else RIDGE, config.moment_noise)


# --- Moments ----------------------------------------------------------------------------------


def _attacked_moments(
    plan: FleetPlan, upload: Upload, own: Sequence[KnownEpisode]
) -> tuple[Score, dict[str, Any]]:
    """Attacks by the leverage of an episode's inputs, and by sums of other steps.

    Data with an episode give it no leverage above 1 along any axis, so that the largest one of all
    maps counts. The map with the smallest error of steps counts, too.
    """
    asked = []
    for query, answer in upload.answers:
        network = network_like(plan.blueprint, query.model)
        whiten = {}
        for name, each in answer.items():
            G = each.inputs.mean(0).numpy()
            root = np.sqrt(np.maximum(G.diagonal(), LEAST))
            scaled, _ = _whitening(G / root / root[:, None], _ridge(plan.config))
            whiten[name] = G, scaled / root[:, None]
        asked.append((network, query, whiten))

    def rows(episode: KnownEpisode) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for network, query, whiten in asked:
            models = (query.model, *query.beside)
            read = _rows_of(network, models, episode, query.maps, query.target)
            yield from ((read[name], *each) for name, each in whiten.items())

    def score(episode: KnownEpisode) -> float:
        return -max(float(np.linalg.norm(X @ each, 2)) for X, _, each in rows(episode))

    of_maps = zip(*map(list, map(rows, own)), strict=True)
    error = min(
        _error_by_sums(np.concatenate([X for X, *_ in parts]), parts[0][1]) for parts in of_maps
    )
    return score, {"error": error}


def _rows_of(
    network: Any,
    models: Sequence[Any],
    episode: KnownEpisode,
    names: Sequence[str],
    target: Target = "none",
) -> dict[str, np.ndarray]:
    """Returns the inputs of maps in an episode, of all models side by side and with a last 1."""
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    assert episode.holder.batches is not None
    for batch in episode.holder.batches():
        read = [input_rows(network, model, batch.arguments, names) for model in models]
        for name in names:
            rows = torch.cat([each[name] for each in read], -1).flatten(0, 1).double()
            if target == "labels" and batch.weights is not None:
                rows = rows[batch.weights.unflatten(0, (len(rows), -1)).amax(1) > 0]
            found[name].append(np.pad(rows.numpy(), ((0, 0), (0, 1)), constant_values=1.0))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _error_by_sums(X: np.ndarray, G: np.ndarray) -> float:
    """Returns the error of steps that are computed from moments of all steps, less the others'.

    The difference is x x^T and the error of the answer. The best of three guesses counts: its first
    axis; the roots of its diagonal, which no codec rounds, with the signs of the mean; the mean.
    """
    error, chosen, mean = len(X) * G - X.T @ X, _chosen(len(X)), X.mean(0)
    by_axis, by_diagonal = [], []
    for number in chosen:
        left = error + np.outer(X[number], X[number])
        values, vectors = eigsh(left, 1, which="LA", v0=left[:, -1])
        axis = vectors[:, 0] * np.sign(vectors[-1, 0])
        by_axis.append(axis * math.sqrt(max(float(values[0]), 0.0)))
        by_diagonal.append(np.sqrt(np.maximum(left.diagonal(), 0.0)) * np.sign(mean))
    by_mean = [mean] * len(chosen)
    return min(_median_error(guesses, X, chosen) for guesses in (by_axis, by_diagonal, by_mean))


def _chosen(count: int) -> np.ndarray:
    return np.random.default_rng(0).choice(count, min(TRIED, count), replace=False)


def _median_error(guesses: Any, X: np.ndarray, chosen: np.ndarray) -> float:
    """Returns the median distance of guesses from rows, relative to the distance from the mean."""
    spread = np.linalg.norm(X[chosen] - X.mean(0), axis=1)
    distances = np.linalg.norm(np.array(guesses) - X[chosen], axis=1)
    return float(np.median(distances / np.where(spread > 0, spread, 1.0)))


# --- Mixtures ---------------------------------------------------------------------------------


def _attacked_mixture(
    plan: FleetPlan, upload: Upload, own: Sequence[KnownEpisode]
) -> tuple[Score, dict[str, Any]]:
    """Attacks by the density of an episode's states or pairs of them, and by the nearest mean."""
    ((query, mixture),) = upload.answers
    n, size = mixture.coordinates, mixture.means.shape[1]
    axes = np.eye(n) if mixture.axes is None else mixture.axes.double().numpy()
    means, weights = mixture.means.double().numpy(), mixture.weights.double().log().numpy()
    ridge = _ridge(plan.config)
    whiten = [_whitening(each.double().numpy(), ridge) for each in mixture.covariances]

    def states(episode: KnownEpisode) -> np.ndarray:
        assert episode.holder.episodes is not None
        (found,) = episode.holder.episodes(query.model)
        return found.double().clamp(-LIMIT, LIMIT).numpy()

    def score(episode: KnownEpisode) -> float:
        x = states(episode) @ np.linalg.pinv(axes).T
        pairs = np.concatenate([x[:-1], x[1:]], 1)[:, :size]
        logs = [
            log - each[1] - np.square((pairs - mean) @ each[0]).sum(1) / 2
            for log, mean, each in zip(weights, means, whiten, strict=True)
        ]
        return float(np.logaddexp.reduce(logs, 0).mean())

    every = [states(each) for each in own]
    rows = np.concatenate(every)
    nearest = min(np.linalg.norm(rows - axes @ mean, axis=1).min() for mean in means[:, :n])
    pairs = np.random.default_rng(0).integers(0, len(rows), (2, 1000))
    typical = np.median(np.linalg.norm(rows[pairs[0]] - rows[pairs[1]], axis=1))
    given = [torch.from_numpy(each) for each in every]
    first, rest, _ = clusters(given, query.components, query.seed, query.rank)
    fewest = min(len(np.unique(numbers)) for _, numbers in (*first, *rest))
    return score, {"nearest": float(nearest / typical), "episodes": fewest}


ATTACKS = {WEIGHTS: _attacked_weights, MOMENTS: _attacked_moments, MIXTURE: _attacked_mixture}
"""attack(plan, upload, own): a score of episodes, and other findings, see `attacks`."""


# --- Raw data ---------------------------------------------------------------------------------


def _attacked_data(
    plan: FleetPlan,
    raw: RawDataConfig,
    members: Sequence[Sequence[KnownEpisode]],
    others: Sequence[KnownEpisode],
) -> list[dict[str, Any]]:
    """Attacks by the distance to the nearest step of the uploads, of all episodes."""
    headers = [Dataset(each).header for each in plan.config.data]
    network: Any = plan.blueprint.create()
    entries, found = list(plan.blueprint.observation), []

    def states(data: Trajectories) -> torch.Tensor:
        read = [
            network.scaled_state({name: each[None] for name, each in observed.items()})[0]
            for observed in data.episodes()
        ]
        return torch.cat(read)[torch.from_numpy(data.imitated)]

    with tempfile.TemporaryDirectory() as place:
        uploads = send(plan, raw, None, Path(place, "uploads"))
        for robot, ((upload, _), own) in enumerate(zip(uploads, members, strict=True)):
            folders = decode(upload, headers, entries, raw, Path(place, str(robot)))
            sent = states(Trajectories(Samples(folders, observations=entries), plan.blueprint))

            def score(episode: KnownEpisode, sent: torch.Tensor = sent) -> float:
                return -float(torch.cdist(states(episode.data), sent).amin(1).mean())

            X = torch.cat([states(each.data) for each in own])
            chosen = _chosen(len(X))
            nearest = sent[torch.cdist(X[chosen], sent).argmin(1)]
            error = _median_error(nearest.numpy(), X.numpy(), chosen)
            pairs = strata(own, others, score)
            found.append({"size": len(upload), "strata": pairs, "error": error})
    return found


def _cells(row: Mapping[str, Any]) -> list[str]:
    shown = "{membership:.2f} ({low:.2f} to {high:.2f})".format(**row)
    rest = ["" if row[name] is None else f"{row[name]:.2g}" for name in ("error", "nearest")]
    episodes = "" if row["episodes"] is None else str(row["episodes"])
    return [row["method"], row["upload"], f"{row['bytes'] / 1e3:,.0f}", shown, *rest, episodes]


main = main_of(__file__, PrivacyOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
