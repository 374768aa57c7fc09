"""One robot of five that is off, fails or lies: it is named and left out, and no honest one is."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from support.fleet_cases import local, plan_of, run_rounds, same, write_data

from fleet_merging.errors import UnsoundMergeError
from fleet_merging.methods.regression import fitted
from fleet_merging.moments.measurement import Moments
from fleet_merging.moments.measurement import combine as combine_moments
from fleet_merging.moments.mixture import StateMixture
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import LossAnswer
from fleet_merging.queries.traffic import TrafficMeter
from fleet_tools.baselines.federated import progress as fleet_progress
from fleet_tools.baselines.federated.messages import LocalUpdate, Message, encode
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress
from fleet_tools.baselines.federated.record import COMBINED, FleetWriter
from fleet_tools.baselines.federated.round_messages import RoundMessages
from fleet_tools.baselines.federated.rounds import combine
from fleet_tools.baselines.federated.run import complete
from fleet_tools.baselines.federated.summary import as_text
from fleet_tools.baselines.federated.transport import Answers, LostClient, RelayingTransport
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.baselines.training.state import TrainingError

LIAR = 3
NAN, INF = float("nan"), float("inf")
FLEET: dict[str, Any] = {
    "policy": {"body": {"type": "mlp", "layers": 2, "width": 4}},
    "robots": 5,
    "held_out": 0.1,
    "split": {"by": "tool", "alpha": 3.0},
    "merge_every": None,
    "training": {"epochs": 1, "batch_size": 16, "seed": 5},
}


class Answering(RelayingTransport):
    """Robots in this process, of which one is off or changes its answers.

    An honest answer depends on the message alone, and is made once.

    Args:
        plan: The fleet.
        liar: Number of the robot.
    """

    def __init__(self, plan: FleetPlan, liar: int = LIAR) -> None:
        super().__init__(local(plan))
        self._known, self._liar = dict[tuple[int, bytes], Any](), liar
        self.lie: Callable[[Any], Any] = honest

    def exchange(
        self, messages: Mapping[int, Message], *, deadline_s: float | None = None
    ) -> Answers:
        for robot, message in messages.items():
            key = robot, hashlib.sha256(encode(message)).digest()
            if key not in self._known:
                ((_, self._known[key]),) = self._inner.exchange({robot: message})
            yield robot, self.lie(self._known[key]) if robot == self._liar else self._known[key]


def honest(answer: Any) -> Any:
    return answer


def off(answer: Any) -> LostClient:
    return LostClient("it is off")


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    steps = [3, 5, 2, 4, 6, 3, 4] * 10
    return write_data(tmp_path_factory.mktemp("lies") / "data", steps)


@pytest.fixture(scope="module", name="trained")
def _trained(folder: Path) -> FleetProgress:
    """Five honest robots after their training."""
    plan = plan_of(folder, **FLEET)
    (result,) = run_rounds(plan)
    assert all(each.left_out is None for each in result.robots.values())
    return fleet_progress.after_round(None, plan, result, None, 0.0)


METHODS: dict[str, dict[str, Any]] = {
    "fisher": {"samples": 3},
    "fed_sgd": {"steps": 1},
    "fleet_merge": {"epochs": 1, "steps": 1},
    "fleet_merge_monotone": {"epochs": 1, "steps": 1},
    "regmean": {},
    "least_squares": {"alignment": "activations"},
    "head_refit": {},
    "structured_compression": {},
    "density_gated_ensemble": {},
    "gated_refit": {},
    "concatenation": {},
    "partition": {},
    "distillation": {"mixtures": 2, "steps": 2, "states": 64},
}


class Fleet:
    """What a method makes of five robots after their training, of which one may lie."""

    def __init__(self, folder: Path, trained: FleetProgress, method: str) -> None:
        options = METHODS[method]
        self.plan = plan_of(folder, **FLEET, last_method=method, last_options=options)
        self.trained, self.transport = trained, Answering(self.plan)

    def merge(self, lie: Callable[[Any], Any] = honest) -> tuple[MergeResult, dict[int, str]]:
        """Returns the merge, and why robots were left out."""
        self.transport.lie = lie
        exchanges = RoundMessages(self.transport)
        result = self.combined(exchanges, self.trained)
        return result, {k: why for k in range(5) if (why := exchanges.left_out(k))}

    def without(self) -> MergeResult:
        """Returns the merge of the other four, which never had a fifth."""
        weights = {k: each for k, each in self.trained.robot_weights.items() if k != LIAR}
        others = replace(self.trained, robot_weights=weights)
        return self.combined(RoundMessages(self.transport), others)

    def combined(self, messages: RoundMessages, trained: FleetProgress) -> MergeResult:
        """Returns what the last method makes of trained robots."""
        networks, number = trained.robot_weights, len(trained.rounds)
        return combine(self.plan, messages, number, networks, trained.robot_steps)


def same_merges(one: MergeResult, other: MergeResult) -> bool:
    gates = [
        {} if each.gate is None else {"means": each.gate.means, "factors": each.gate.factors}
        for each in (one, other)
    ]
    return len(one.members) == len(other.members) and all(
        same(dict(own), dict(others))
        for own, others in zip([*one.members, gates[0]], [*other.members, gates[1]], strict=True)
    )


def _each(change: Callable[[Moments], Any]) -> Callable[[Any], Any]:
    return lambda answer: {name: change(moments) for name, moments in answer.items()}


def _inputs(change: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
    return _each(lambda each: replace(each, inputs=change(each.inputs)))


def _targets(change: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
    return _each(lambda each: replace(each, targets=change(each.targets)))


def _with_entry(row: int, column: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(matrices: torch.Tensor) -> torch.Tensor:
        changed = matrices.clone()
        changed[0, row, column] = changed[0, column, row] = value
        return changed

    return change


def _huge_in_one_direction(G: torch.Tensor) -> torch.Tensor:
    rows = torch.full_like(G[0, 0], 1e6)
    rows[-1] = 0.0
    return G + rows.outer(rows)


def _of_variance(variance: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Sets the variance of the first input, without its mean and its other products."""

    def change(G: torch.Tensor) -> torch.Tensor:
        return _with_entry(0, 0, float(G[0, 0, -1] ** 2) + variance)(G)

    return change


OF_ANY: dict[str, Callable[[Any], Any]] = {
    "off": off,
    "another kind": lambda answer: LocalUpdate(1, 1, 0.0, {}),
    "nothing": lambda answer: None,
    "text": lambda answer: "an answer",
}
OF_MOMENTS: dict[str, Callable[[Any], Any]] = OF_ANY | {
    "empty": lambda answer: {},
    "more": lambda answer: answer | {"observations": next(iter(answer.values()))},
    "nothing inside": _each(lambda each: None),
    "no tensors": _inputs(lambda G: 3),
    "nan": _inputs(lambda G: G * NAN),
    "infinity": _inputs(lambda G: G * INF),
    "huge": _inputs(lambda G: G * 1e30),
    "huge, of some data": _inputs(_huge_in_one_direction),
    "tiny": _inputs(lambda G: G * 1e-310),
    "zero": _inputs(torch.zeros_like),
    "negated": _inputs(torch.neg),
    "doubled": _inputs(lambda G: 2 * G),
    "negative variance": _inputs(_of_variance(-0.09)),
    "indefinite": _inputs(lambda G: G - 0.01 * torch.eye(G.shape[-1])),
    "one product too large": _inputs(_with_entry(0, -1, 1e5)),
    "asymmetric": _inputs(lambda G: torch.triu(G) + 0.5 * torch.tril(G, -1)),
    "another shape": _inputs(lambda G: G[:, 1:, 1:]),
    "a vector": _inputs(lambda G: G[0, 0]),
    "another type": _inputs(lambda G: G.float()),
    "integers": _inputs(lambda G: G.long()),
}
OF_TARGETS = {
    "targets times -1000": _targets(lambda C: -1000 * C),
    "huge targets": _targets(lambda C: 1e30 * C),
    "targets of no input": _targets(lambda C: C + 2.0),
    "targets of another shape": _targets(lambda C: C[..., 1:]),
    "targets of another type": _targets(lambda C: C.float()),
    "targets that are not finite": _targets(lambda C: C * NAN),
}
OF_LOSSES: dict[str, Callable[[Any], Any]] = OF_ANY | {
    "nan": lambda answer: replace(answer, loss=NAN),
    "infinity": lambda answer: replace(answer, loss=INF),
    "huge": lambda answer: replace(answer, loss=1e30),
    "negative": lambda answer: replace(answer, loss=-1.0),
    "no number": lambda answer: replace(answer, loss="0.5"),
    "a boolean": lambda answer: replace(answer, loss=True),
}


def _gradient(change: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
    return lambda answer: LossAnswer(
        answer.loss, {name: change(each) for name, each in answer.gradient.items()}
    )


OF_GRADIENTS = {
    "a gradient that is not finite": _gradient(lambda each: each * NAN),
    "a huge gradient": _gradient(lambda each: each * 1e30),
    "a gradient of another shape": _gradient(lambda each: each[None]),
    "a gradient of another type": _gradient(lambda each: each.double()),
    "no tensors": _gradient(lambda each: 3),
    "no gradients": lambda answer: replace(answer, gradient=3),
    "more": lambda answer: LossAnswer(
        answer.loss, {**answer.gradient, "actions": torch.ones(5, 6)}
    ),
}


def _mixture(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def lie(answer: Any) -> Any:
        if not isinstance(answer, StateMixture):
            return answer
        return replace(answer, **{name: f(getattr(answer, name)) for name, f in changes.items()})

    return lie


OF_MIXTURES = {
    "off at mixtures": lambda answer: off(answer) if isinstance(answer, StateMixture) else answer,
    "means of 1e5": _mixture(means=lambda means: means + 1e5),
    "means beyond the clip": _mixture(means=lambda means: means + 21.0),
    "means that are not finite": _mixture(means=lambda means: means * NAN),
    "huge variances": _mixture(covariances=lambda each: each + 1e4 * torch.eye(each.shape[-1])),
    "negative variances": _mixture(covariances=lambda each: each - 5 * torch.eye(each.shape[-1])),
    "indefinite": _mixture(covariances=lambda each: each.flip(-1)),
    "asymmetric": _mixture(covariances=torch.triu),
    "weights of another sum": _mixture(weights=lambda weights: 2 * weights),
    "negative weights": _mixture(weights=torch.neg),
    "episodes without end": _mixture(
        weights=lambda weights: torch.cat([0 * weights[:-1] + 1e-7, weights[-1:] * 0 + 1])
    ),
    "no first state": _mixture(starts=lambda starts: 0),
    "too many first states": _mixture(starts=lambda starts: 2**62),
    "a boolean": _mixture(starts=lambda starts: True),
    "a fraction": _mixture(starts=lambda starts: 1.0),
    "no tensors": _mixture(means=lambda means: None),
    "another type": _mixture(means=lambda means: means.double()),
    "one component less": _mixture(means=lambda means: means[1:]),
}
ASKED = {
    "loss": OF_LOSSES | OF_GRADIENTS,
    "moments": OF_MOMENTS,
    "labels": OF_MOMENTS | OF_TARGETS,
    "mixture": OF_MIXTURES,
}
OF_METHOD = {
    "fisher": ("loss",),
    "fed_sgd": ("loss",),
    "fleet_merge": ("loss",),
    "fleet_merge_monotone": ("loss",),
    "regmean": ("moments",),
    "density_gated_ensemble": ("moments",),
    "distillation": ("moments", "mixture"),
}


def lies_of(method: str, every: bool) -> dict[str, Callable[[Any], Any]]:
    """Returns the lies that a method is told: every one, or its share.

    Each lie is told to a fourth of the methods that ask such a question.
    """
    found = {}
    for kind in OF_METHOD.get(method, ("labels",)):
        asking = [each for each in METHODS if kind in OF_METHOD.get(each, ("labels",))]
        share = 1 if every else min(4, len(asking))
        lies = list(ASKED[kind].items())[asking.index(method) % share :: share]
        found |= {f"{kind}: {name}": lie for name, lie in lies}
    return found


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_who_lies_is_named_and_the_merge_is_that_of_the_others(
    method: str, every: bool, folder: Path, trained: FleetProgress
) -> None:
    fleet = Fleet(folder, trained, method)
    whole, left_out = fleet.merge()
    expected, passed = fleet.without(), []
    assert not left_out and not same_merges(whole, expected)
    for attack, lie in lies_of(method, every).items():
        result, left_out = fleet.merge(lie)
        if list(left_out) != [LIAR] or not same_merges(result, expected):
            passed.append((attack, left_out))
    assert not passed


def _weights(change: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
    return lambda update: replace(
        update, weights={name: change(each) for name, each in update.weights.items()}
    )


def _one_entry(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(weights: torch.Tensor) -> torch.Tensor:
        changed = weights.clone()
        changed.view(-1)[0] = value
        return changed

    return change


OF_UPDATES: dict[str, Callable[[Any], Any]] = {
    "off": off,
    "another kind": lambda update: LossAnswer(0.0, {}),
    "nothing": lambda update: None,
    "nan": _weights(lambda each: each * NAN),
    "infinity": _weights(_one_entry(INF)),
    "weights of 1e30": _weights(lambda each: each * 1e30),
    "weights of 1e6": _weights(lambda each: each * 1e6),
    "one entry of 1e30": _weights(_one_entry(1e30)),
    "one entry of -1e30": _weights(_one_entry(-1e30)),
    "another shape": _weights(lambda each: each[None]),
    "another type": _weights(lambda each: each.double()),
    "no tensors": _weights(lambda each: 3),
    "cannot be averaged": lambda update: replace(update, weights=None),
    "empty": lambda update: replace(update, weights={}),
    "more": lambda update: replace(update, weights={**update.weights, "data": torch.ones(1)}),
    **{
        f"{steps} steps": lambda update, steps=steps: replace(update, steps=steps)
        for steps in (2**62, 10**4, 0, -1, True, 3.0, "3", None, NAN)
    },
    "another round": lambda update: replace(update, round=2),
    "a loss that is not finite": lambda update: replace(update, loss=NAN),
    "a loss that is no number": lambda update: replace(update, loss="0"),
}


@pytest.mark.parametrize("robots", [2, 5])
@pytest.mark.parametrize("method", ["naive_average", "head_refit"])
def test_who_sends_weights_or_steps_that_no_training_gives_is_named(
    method: str, robots: int, folder: Path
) -> None:
    plan = plan_of(folder, **FLEET | {"robots": robots, "method": method})
    liar, transport = robots - 1, Answering(plan, robots - 1)
    transport.lie = off
    (expected,) = run_rounds(plan, transport)
    for attack, lie in OF_UPDATES.items():
        transport.lie = lambda answer, lie=lie: (
            lie(answer) if isinstance(answer, LocalUpdate) else answer
        )
        (result,) = run_rounds(plan, transport)
        left_out = [robot for robot, each in result.robots.items() if each.left_out]
        assert left_out == [liar] and same(result.weights, expected.weights), attack


@pytest.mark.parametrize("how", ["off", "nan"])
def test_a_fleet_ends_without_the_robot_that_fails_after_training(
    how: str, folder: Path, tmp_path: Path
) -> None:
    """It ended with an error, at each new start; now it says who is left out."""
    distilled = {"inputs": "moments", "states": 50, "epochs": 1}
    plan = plan_of(folder, **FLEET, last_method="density_gated_ensemble", distillation=distilled)
    transport = Answering(plan)

    def lie(answer: Any) -> Any:
        if not isinstance(answer, dict):
            return answer
        return off(answer) if how == "off" else OF_MOMENTS["nan"](answer)

    transport.lie = lie
    for _ in range(2):
        with FleetWriter(tmp_path / "fleet", plan) as writer:
            report = complete(writer, transport)
        (left_out,) = report["combined"]["left_out"]
        assert left_out["robot"] == LIAR
        assert ("it is off" if how == "off" else "NaN") in left_out["reason"]
        gate = load_checkpoint(tmp_path / "fleet" / COMBINED).blueprint.config.gate
        assert gate is not None and gate.members == 4
        assert f"combined policy without robot {LIAR}: " in as_text("fleet", report)
    transport.lie = honest  # it is back
    with FleetWriter(tmp_path / "fleet", plan) as writer:
        assert complete(writer, transport)["combined"]["left_out"] == []


def test_too_few_that_stay_are_one_error(folder: Path, trained: FleetProgress) -> None:
    fleet = Fleet(folder, trained, "density_gated_ensemble")
    quorum = {"closing": {"quorum": 1.0}, "last_method": "density_gated_ensemble"}
    fleet.plan = plan_of(folder, **FLEET | quorum)
    with pytest.raises(TrainingError, match=f"4 of 5 robots.*quorum is 5.*Robot {LIAR}: it is off"):
        fleet.merge(off)


def test_a_second_answer_and_one_of_a_robot_that_was_not_asked_are_dropped(folder: Path) -> None:
    plan = plan_of(folder, **FLEET)

    class Repeating(Answering):
        def exchange(
            self, messages: Mapping[int, Message], *, deadline_s: float | None = None
        ) -> Answers:
            for robot, answer in super().exchange(messages):
                yield robot, answer
                yield robot, OF_UPDATES["nan"](answer)
                yield 99, answer

    results = [run_rounds(plan, kind(plan))[0] for kind in (Answering, Repeating)]
    assert same(results[0].weights, results[1].weights)
    assert list(results[1].robots) == list(range(5))


def overflowing(problem: MergeProblem) -> MergeResult:
    """A merging method that asks about a model whose units overflow."""
    model = {name: each * 1e30 for name, each in problem.models[0].items()}
    return MergeResult.network(
        fitted(
            problem,
            problem.affine_maps[-1],
            model,
            "labels",
            (),
            1e-3,
            TrafficMeter(),
            combine_moments,
        )
    )


def test_a_merged_model_that_overflows_is_no_fault_of_who_says_so(folder: Path) -> None:
    """Its answers are not finite, and the server's own are not either."""
    method = f"{overflowing.__module__}:overflowing"
    with pytest.raises(UnsoundMergeError, match="The merged model has diverged"):
        run_rounds(plan_of(folder, **FLEET | {"method": method}))
