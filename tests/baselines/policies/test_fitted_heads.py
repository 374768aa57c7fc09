"""Last maps of heads of every kind, fitted to the data of robots in closed form."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import multivariate_normal
from support.policy_cases import ACTION, BLUEPRINTS, BODIES, DENOISING, made, observations
from support.training_cases import small_data

from fleet_merging.errors import MergeError, MessageError
from fleet_merging.methods.registry import merge
from fleet_merging.moments.measurement import (
    LabelledBatch,
    Moments,
    combine,
    measure_moments,
    solve,
)
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.model_files import IncompatiblePoliciesError, common_blueprint
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem, merged_checkpoint
from fleet_tools.baselines.policies.part_configs import (
    FlowHeadConfig,
    HeadConfig,
    LinearHeadConfig,
    MLPConfig,
)
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.baselines.training.loop import draws, imitation_losses, labelled
from fleet_tools.dataset.samples import Samples
from fleet_tools.rollouts.episode import NOISE_STEPS

HEADS: dict[str, HeadConfig] = {"linear": LinearHeadConfig(), **DENOISING}
CASES = [
    ("mlp", "linear", 3),
    ("elman", "linear", 20),
    ("mlp", "flow", 1),
    ("elman", "flow", 3),
    ("gru", "diffusion", 3),
]
KINDS = pytest.mark.parametrize(("body", "head", "chunk"), CASES)


@dataclass(frozen=True)
class Robots:
    """Two robots with data and new policies of one kind."""

    blueprint: Blueprint
    data: Sequence[Trajectories]

    def problem(self, *models: int, method: str = "", **fields: Any) -> MergeProblem:
        """Returns the problem of merging the networks of some seeds, robot by robot."""
        data = self.data[: len(models)]
        return replace(
            checkpoint_problem(
                self.blueprint,
                [self.blueprint.create(seed).state_dict() for seed in models],
                [local_data_holder(self.blueprint, each, 64) for each in data],
                averaging_weights=[each.steps for each in data],
                method=method,
            ),
            **fields,
        )

    def network(self, result: MergeResult) -> Any:
        return network_of(merged_checkpoint(self.blueprint, result))

    def loss(self, network: Any, times: int, seed: int) -> torch.Tensor:
        """Returns the loss of training on the data of all, with several draws for each step."""
        total, steps = torch.zeros(()), 0
        for index, each in enumerate(self.data):
            (items,) = each.order(10**6, None)
            batch = each.batch(np.tile(items, times))
            generator = draws(seed, index, 0)
            total = (
                total
                + imitation_losses(network, batch, self.blueprint.config.head, generator).sum()
            )
            steps += int(batch.mask.sum())
        return total / steps


def network_of(checkpoint: Checkpoint) -> Any:
    network = checkpoint.blueprint.create().eval()
    network.load_state_dict(checkpoint.weights)
    return network.requires_grad_(False)


@pytest.fixture(scope="module", name="samples")
def _samples(tmp_path_factory: pytest.TempPathFactory) -> list[Samples]:
    """Episodes of which some have steps not to imitate."""
    folder = tmp_path_factory.mktemp("robots")
    both = [small_data(folder / str(k), (9, 4, 12, 7, 1) * 5, seed=k) for k in range(2)]
    for samples in both:
        samples.episodes = tuple(
            replace(
                each,
                record=each.record.model_copy(update={"info": {NOISE_STEPS: [2, 3]}}),
            )
            if each.record.steps == 12
            else each
            for each in samples.episodes
        )
    return both


def robots_of(samples: list[Samples], body: str, head: str | HeadConfig, chunk: int) -> Robots:
    config = PolicyConfig(
        body=BODIES[body], head=HEADS[head] if isinstance(head, str) else head, chunk=chunk
    )
    blueprint = blueprint_of(config, samples[0])
    return Robots(blueprint, [Trajectories(each, blueprint) for each in samples])


@pytest.mark.parametrize(
    ("body", "head", "chunk"), [*CASES, ("transformer", "linear", 1), ("linear", "linear", 1)]
)
def test_no_gradient_finds_a_better_last_layer(samples, body, head, chunk):
    """On fresh draws, by the loss of training: what closed form and masks have to agree with."""
    method = "gated_refit" if body == "mlp" else "concatenation"
    robots = robots_of(samples, body, head, chunk)
    closed = robots.network(merge(method, robots.problem(0, 1, method=method), ridge=1e-9))
    trained = copy.deepcopy(closed)
    last = [
        parameter
        for member in trained.members
        for name, parameter in member.named_parameters()
        if name.startswith("head.") and "layers" not in name
    ]
    times = 1 if head == "linear" else 20
    optimizer = torch.optim.LBFGS(
        [each.requires_grad_() for each in last], max_iter=30, line_search_fn="strong_wolfe"
    )

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = robots.loss(trained, times, seed=7)
        loss.backward()
        return loss

    optimizer.step(step)
    fresh = [float(robots.loss(each, 4 * times, seed=9).detach()) for each in (closed, trained)]
    assert fresh[0] < 1.01 * fresh[1]


def test_few_draws_measure_what_a_head_reads(samples):
    """Moments of features are the same for any number of draws; moments of noise are estimates."""
    robots = robots_of(samples[:1], "mlp", "flow", 3)
    holder: Any = robots.problem(0).data_holders[0]
    query = MomentQuery(robots.blueprint.create(0).state_dict(), ("head.layers.0",))
    few = holder.answer(query)["head.layers.0"].inputs[0]
    many = replace(holder, unlabelled=None).answer(query)["head.layers.0"].inputs[0]
    body: Any = robots.blueprint.config.body
    features = np.s_[: body.width, : body.width]
    torch.testing.assert_close(few[features], many[features])
    assert 0 < (few - many).norm() < 0.2 * many.norm()


@KINDS
def test_of_one_robot_it_has_at_most_its_own_heads_loss(samples, body, head, chunk):
    robots = robots_of(samples[:1], body, head, chunk)
    for method in ("concatenation", "head_refit", "structured_compression"):
        fitted = robots.network(merge(method, robots.problem(3)))
        own = robots.network(merge("naive_average", robots.problem(3)))
        assert robots.loss(fitted, 20, 5) < robots.loss(own, 20, 5)


@KINDS
def test_seeds_repeat_bits_and_the_order_of_hidden_units_does_not_matter(
    samples, body, head, chunk
):
    robots = robots_of(samples, body, head, chunk)
    problem, generator = robots.problem(0, 1), np.random.default_rng(0)
    results = [merge("concatenation", robots.problem(0, 1)) for _ in range(2)]
    for one, other in zip(*(each.members for each in results), strict=True):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    permuted = [
        problem.symmetry.apply(problem.group.random(generator), each) for each in problem.models
    ]
    arguments = robots.blueprint.arguments(3)
    for method in ("concatenation", "gated_refit", "partition"):
        given_models = robots.problem(0, 1, method=method)
        acted = [
            robots.network(merge(method, each))(*arguments)[0]
            for each in (given_models, replace(given_models, models=permuted))
        ]
        torch.testing.assert_close(*acted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("chunk", [1, 4])
def test_the_linear_chunk_control_is_least_squares_of_each_action_on_its_own_steps(samples, chunk):
    """By numpy, action by action: a policy without hidden units, on all steps of the robots."""
    config = PolicyConfig(body=MLPConfig(layers=0), chunk=chunk)
    blueprint = blueprint_of(config, samples[0])
    robots = Robots(blueprint, [Trajectories(each, blueprint) for each in samples])
    network = robots.network(merge("head_refit", robots.problem(0, 1), ridge=1e-12))
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for each in robots.data:
        batch = each.batch(each.order(10**6, None)[0])
        state = network.features(batch.observations).flatten(0, 1).double().numpy()
        actions, imitated = (part[:, 0].numpy() for part in (batch.actions, batch.imitated))
        rows.append((np.pad(state, ((0, 0), (0, 1)), constant_values=1.0), actions, imitated))
    x, actions, imitated = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    for k in range(chunk):
        root = np.sqrt(imitated[:, k] / imitated.sum(1))[:, None]
        expected = np.linalg.lstsq(root * x, root * actions[:, k])[0]
        own = slice(6 * k, 6 * k + 6)
        np.testing.assert_allclose(network.head.weight[own].T, expected[:-1], atol=2e-3)
        np.testing.assert_allclose(network.head.bias[own], expected[-1], atol=2e-3)


@pytest.mark.parametrize("head", DENOISING)
def test_untrained_features_with_a_fitted_last_layer_are_a_control_of_every_head(samples, head):
    robots = robots_of(samples, "mlp", head, 3)
    base = robots.blueprint.create(5).state_dict()
    result = merge("head_refit", robots.problem(0, 1, base=base), of="base")
    changed = {name for name, each in result.state.items() if not torch.equal(each, base[name])}
    assert changed == {"head.output.weight", "head.output.bias"}
    losses = [
        float(robots.loss(network_of(Checkpoint(robots.blueprint, each)), 20, 5))
        for each in (result.state, base)
    ]
    assert losses[0] < losses[1]


def test_absolute_errors_are_fitted_as_squared_ones(samples):
    squared, absolute = (
        robots_of(samples, "mlp", LinearHeadConfig(loss=loss), 2)
        for loss in ("squared", "absolute")
    )
    members = [merge("concatenation", each.problem(0, 1)).members for each in (squared, absolute)]
    for one, other in zip(*members, strict=True):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@given(st.integers(0, 2**31), st.integers(1, 4), st.sampled_from([0.0, 0.3, 1.0]))
def test_moments_of_parts_add_up_and_are_least_squares_part_by_part(seed, parts, kept):
    generator = np.random.default_rng(seed)
    model = torch.nn.Linear(3, 2 * parts)
    state = model.state_dict()

    def batch(count: int) -> LabelledBatch:
        x, y = generator.normal(size=(count, 3)), generator.normal(size=(count, 2 * parts))
        weights = generator.random((count, parts)) * (generator.random((count, parts)) < 0.8)
        weights[:, -1] *= kept if parts > 1 else 1.0  # a part that nobody may have
        weights[0, 0] = 0.5
        arguments = (torch.from_numpy(x).float(),)
        return LabelledBatch(arguments, torch.from_numpy(y).float(), torch.from_numpy(weights))

    batches = [batch(30), batch(20)]
    weights = [float(np.asarray(each.weights).sum()) for each in batches]

    def measured(some: Sequence[LabelledBatch]) -> Moments:
        return measure_moments(model, some, state, [""], "labels")[""]

    pooled = measured(batches)
    shares = [each / sum(weights) for each in weights]
    joined = combine([measured([each]) for each in batches], shares)
    torch.testing.assert_close(joined.inputs, pooled.inputs)
    torch.testing.assert_close(joined.targets, pooled.targets)
    prior = torch.from_numpy(generator.normal(size=(1, 4, 2 * parts)))
    found = solve(pooled, prior, 1e-12)[0]
    x, y, w = (
        np.concatenate([np.asarray(each) for each in some])
        for some in zip(*((b.arguments[0], b.labels, b.weights) for b in batches), strict=True)
    )
    x = np.pad(x, ((0, 0), (0, 1)), constant_values=1.0)
    for k in range(parts):
        own, root = slice(2 * k, 2 * k + 2), np.sqrt(w[:, [k]])
        expected = np.linalg.lstsq(root * x, root * y[:, own])[0]
        if not w[:, k].any():
            expected = prior[0, :, own].numpy()  # where there are no data, nothing changes
        np.testing.assert_allclose(found[:, own], expected, atol=1e-5)


@pytest.mark.parametrize("head", DENOISING)
def test_several_draws_of_a_step_are_those_one_by_one(head):
    name = {"flow": "mlp with flow", "diffusion": "gru with diffusion"}[head]
    network, (observed, _, noisy, time) = made(name), BLUEPRINTS[name].arguments()
    several = [torch.stack([each, 0.5 * each, 0 * each], 2) for each in (noisy, time)]
    with torch.no_grad():
        answers = network(observed, None, *several)[0]
        for k in range(3):
            one = network(observed, None, *(each[:, :, k] for each in several))[0]
            torch.testing.assert_close(answers[:, :, k], one)


def test_labels_hold_as_many_seeded_draws_as_are_asked_for(samples):
    robots = robots_of(samples, "elman", "flow", 3)
    batch, head = robots.data[0].batch(np.arange(4)), robots.blueprint.config.head
    asked: Any = [labelled(batch, head, draws(seed, 0, 0), 32) for seed in (0, 0, 1)]
    one, same, other = asked
    _, _, noisy, time = one.arguments
    steps = batch.mask.numel()
    assert noisy.shape == (*batch.mask.shape, 32, 18) and time.shape == (*batch.mask.shape, 32, 1)
    assert one.labels.shape == (32 * steps, 18) and one.weights.shape == (32 * steps, 3)
    assert torch.equal(one.labels, same.labels) and not torch.equal(one.labels, other.labels)
    torch.testing.assert_close(one.weights.sum(1).sum(), 32.0 * batch.mask.sum())


@pytest.mark.parametrize("head", DENOISING)
@pytest.mark.parametrize("sharpness", [0.0, 0.1])
def test_heads_act_together_along_one_path(samples, head, sharpness):
    """Step by step, by the library's ensemble of answers: another route to the same actions."""
    robots = robots_of(samples, "mlp", head, 2)
    method = "gated_refit" if sharpness else "concatenation"
    result = merge(method, robots.problem(0, 1, method=method))
    network, model = robots.network(result), result.model
    observed, _, noisy, _ = robots.blueprint.arguments(1)
    process = network.members[0].head._process
    with torch.no_grad():
        expected = process.sample(lambda *asked: model(observed, None, *asked), noisy)
        torch.testing.assert_close(network(observed, None, noisy)[0], expected)
    equal = replace(result, members=(result.members[0],) * 2)
    torch.testing.assert_close(
        robots.network(equal)(observed, None, noisy)[0],
        network_of(Checkpoint(robots.blueprint, result.members[0]))(observed, None, noisy)[0],
    )


@pytest.mark.parametrize("head", DENOISING)
def test_networks_are_compressed_with_the_units_of_their_heads(samples, head):
    robots = robots_of(samples, "mlp", head, 2)
    wide, own, narrow = (
        merge("structured_compression", robots.problem(0, 1), width=width)
        for width in (48, None, 6)
    )
    beside = robots.network(merge("concatenation", robots.problem(0, 1)))
    losses = [float(robots.loss(robots.network(each), 20, 5)) for each in (wide, own, narrow)]
    assert losses[0] == pytest.approx(float(robots.loss(beside, 20, 5)), rel=0.01)
    assert losses[1] < losses[2]
    average = robots.network(merge("naive_average", robots.problem(0, 1)))
    assert losses[2] < float(robots.loss(average, 20, 5))


@pytest.mark.parametrize("body", ["mlp", "elman"])
def test_a_student_learns_the_answers_of_heads_that_denoise(samples, body):
    robots = robots_of(samples, body, "flow", 2)
    options: Any = {"teacher": "concatenation", "mixtures": 2, "states": 2000, "batch": 128}
    problem = robots.problem(0, 1, method="distillation")
    start, taught, again = (
        merge("distillation", problem, **options, steps=steps).state for steps in (0, 250, 250)
    )
    assert all(torch.equal(tensor, again[name]) for name, tensor in taught.items())
    teacher = robots.network(merge("concatenation", robots.problem(0, 1)))
    gaps = []
    for state in (start, taught):
        student, errors = network_of(Checkpoint(robots.blueprint, state)), []
        for each in robots.data:
            batch = labelled(each.batch(each.order(10**6, None)[0]), HEADS["flow"], draws(9, 0, 0))
            answers = [network(*batch.arguments)[0] for network in (student, teacher)]
            errors.append((answers[0] - answers[1]).square().mean())
        gaps.append(float(torch.stack(errors).mean()))
    assert gaps[1] < 0.7 * gaps[0]


SEEING = ("mlp on clouds", "elman on clouds")


@cache
def seen(name: str, robot: int) -> dict[str, torch.Tensor]:
    """Returns what a robot sees, which lies elsewhere than what the other one does."""
    found = observations(BLUEPRINTS[name], 12, 9, seed=robot)
    return {key: each + robot * (key != "point_cloud") for key, each in found.items()}


def seeing_problem(name: str, blueprint: Blueprint | None = None, **fields: Any) -> MergeProblem:
    """Returns the problem of two robots that see, and learn what networks of their own do."""
    blueprint = blueprint or BLUEPRINTS[name]
    models, holders = [blueprint.create(robot).state_dict() for robot in range(2)], []
    for robot, state in enumerate(models):
        network, observed = network_of(Checkpoint(blueprint, state)), seen(name, robot)
        labels = network(observed)[0].flatten(0, 1)
        data: Any = None
        holders.append(
            replace(
                local_data_holder(blueprint, data, 8),
                unlabelled=None,
                batches=lambda o=observed, y=labels: [LabelledBatch((o,), y)],
            )
        )
    method = "density_gated_ensemble"
    return replace(checkpoint_problem(blueprint, models, holders, method=method), **fields)


@pytest.mark.parametrize("name", SEEING)
def test_a_gate_of_policies_that_see_is_that_of_gaussians_of_one_networks_features(name):
    """By scipy, in units of the features' deviations in the data of all."""
    problem = seeing_problem(name, averaging_weights=[1.0, 2.0])
    result = merge("density_gated_ensemble", problem)
    assert result.gate is not None and result.gate.reader == 1
    reader = network_of(Checkpoint(BLUEPRINTS[name], problem.models[1]))
    own = [reader.features(seen(name, robot)).flatten(0, 1).double().numpy() for robot in (0, 1)]
    second = np.average([each.T @ each / len(each) for each in own], 0, [1.0, 2.0])
    mean = np.average([each.mean(0) for each in own], 0, [1.0, 2.0])
    deviations = np.sqrt((np.diagonal(second) - mean**2).clip(0))
    scale = deviations.clip(1e-3 * deviations.max())
    logarithms = []
    for each in own:
        covariance: Any = np.cov(each.T / scale[:, None], bias=True) + 0.1 * np.eye(len(scale))
        density: Any = multivariate_normal((each / scale).mean(0), covariance)
        logarithms.append(density.logpdf(own[0] / scale))
    weights = softmax(0.1 * np.stack(logarithms, 1), 1)
    observed = seen(name, 0)
    answers = [
        network_of(Checkpoint(BLUEPRINTS[name], each))(observed)[0].flatten(0, 1).numpy()
        for each in problem.models
    ]
    expected = (np.stack(answers, -1) * weights[:, None]).sum(-1)
    stored = merged_checkpoint(BLUEPRINTS[name], result)
    acted = network_of(stored)(observed)[0].flatten(0, 1)
    np.testing.assert_allclose(acted, expected, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(result.model(observed).flatten(0, 1), acted)


@pytest.mark.parametrize("name", SEEING)
def test_units_and_scales_of_features_do_not_change_a_gate(name):
    problem, generator = seeing_problem(name), np.random.default_rng(0)
    permuted = [
        problem.symmetry.apply(problem.group.random(generator), each) for each in problem.models
    ]
    scaled = [dict(each) for each in problem.models]
    for part in ("weight", "bias"):
        scaled[0][f"clouds.layers.1.{part}"] = 7 * scaled[0][f"clouds.layers.1.{part}"]
    weights = [
        merge("density_gated_ensemble", replace(problem, models=each)).gate
        for each in (problem.models, permuted, scaled)
    ]
    found = []
    for gate, models in zip(weights, (problem.models, permuted, scaled), strict=True):
        assert gate is not None
        reader = network_of(Checkpoint(BLUEPRINTS[name], models[0]))
        features = reader.features(seen(name, 1)).flatten(0, 1)[None]
        found.append(gate.weights(features, features.shape[1]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[0], found[2], rtol=1e-3, atol=1e-4)
    assert float(found[0][:, 1].mean()) > 0.6  # who learned from it


@pytest.mark.parametrize("name", SEEING)
def test_fitted_behind_a_gate_policies_that_see_come_nearer_to_their_labels(name):
    problem = seeing_problem(name)
    losses = []
    for method in ("ensemble", "density_gated_ensemble", "gated_refit"):
        network = network_of(merged_checkpoint(BLUEPRINTS[name], merge(method, problem)))
        errors = [
            (network(batch.arguments[0])[0].flatten(0, 1) - batch.labels).square().mean()
            for holder in problem.data_holders
            for batch in holder.batches()  # pyright: ignore
        ]
        losses.append(float(torch.stack(errors).mean()))
    assert losses[2] < losses[1] < losses[0]


def test_encoders_flow_and_chunks_together_make_a_policy(samples):
    del samples
    config = BLUEPRINTS["elman on clouds"].config.model_copy(
        update={"head": DENOISING["flow"], "chunk": 2}
    )
    given = BLUEPRINTS["elman on clouds"]
    blueprint = Blueprint.of(config, given.observation, ACTION)
    problem = seeing_problem("elman on clouds", blueprint)
    gate = merge("density_gated_ensemble", problem)
    arguments = blueprint.arguments(2)
    stored = network_of(merged_checkpoint(blueprint, gate))
    with torch.no_grad():
        torch.testing.assert_close(stored(*arguments)[0], gate.model(*arguments))
    several = [each.unsqueeze(2).expand(-1, -1, 5, -1) for each in arguments[2:]]
    with torch.no_grad():
        answers = gate.model(*arguments[:2], *several)
    torch.testing.assert_close(answers, stored(*arguments)[0].unsqueeze(2).expand_as(answers))


def test_labels_of_other_parts_than_the_chunk_has_are_refused(samples):
    robots = robots_of(samples, "mlp", "linear", 3)
    problem = robots.problem(0, 1)
    holder: Any = problem.data_holders[0]
    whole = [replace(each, weights=None) for each in holder.batches()]
    query = MomentQuery(problem.models[0], ("head",), "labels")
    with pytest.raises(MessageError, match=r"expected: \(3, 25, 25\)"):
        whole_holder = replace(holder, batches=lambda: whole)
        next(TrafficMeter().ask_all_moments([whole_holder], [query], problem.affine_maps))
    odd = [replace(each, weights=torch.ones(len(each.labels), 5)) for each in holder.batches()]
    with pytest.raises(MergeError, match="5 parts, which do not divide 18 outputs"):
        replace(holder, batches=lambda: odd).answer(query)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chunk": 4}, ["chunk is 2, not 4"]),
        ({"head": FlowHeadConfig(steps=7)}, ["head.steps is 10, not 7"]),
        ({"head": LinearHeadConfig()}, ["head.type is 'flow', not 'linear'"]),
        ({"body": MLPConfig(width=64)}, ["body.width is 512, not 64"]),
    ],
)
def test_policies_of_other_chunks_or_heads_are_refused_with_what_makes_them_agree(changes, words):
    config = PolicyConfig(head=FlowHeadConfig(), chunk=2)
    given = BLUEPRINTS["mlp on state"].observation
    one, other = (
        Blueprint.of(each, given, ACTION) for each in (config, config.model_copy(update=changes))
    )
    with pytest.raises(IncompatiblePoliciesError) as error:
        common_blueprint({"a": one, "b": other})
    assert all(word in str(error.value) for word in [*words, "--like a"])
