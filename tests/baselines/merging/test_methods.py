"""Laws that every method keeps, and those of Fleet-Merge."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from merging_cases import WIDE, noisy, robot

from fleet_tools.baselines.merging.average import average, flat
from fleet_tools.baselines.merging.errors import FleetError, ModelMismatchError
from fleet_tools.baselines.merging.matching.activations import record
from fleet_tools.baselines.merging.matching.soft_descent import Descent, descend
from fleet_tools.baselines.merging.methods.fleet_merge import fleet_merge
from fleet_tools.baselines.merging.methods.git_rebasin import git_rebasin
from fleet_tools.baselines.merging.methods.registry import METHODS, merge
from fleet_tools.baselines.merging.methods.sinkhorn_rebasin import sinkhorn_rebasin
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.queries.data_holder import ask
from fleet_tools.errors import UnknownNameError

SHORT = Descent(steps=2)
STEPPED = {name for name in METHODS if "sinkhorn" in name or "fleet" in name}
MODULES = {"mlp": {"h1": "1", "h2": "3"}}


def options(method):
    return {"descent": SHORT} if method in STEPPED else {}


def copies(kind, count, seed=0, **fields):
    """A fleet of one model and permuted copies of it, each with a robot that taught it."""
    architecture = WIDE[kind]
    model = architecture.build()
    state = model.state_dict()
    group = architecture.symmetry.group(state)
    generator = np.random.default_rng(seed)
    models = [architecture.symmetry.apply(group.random(generator), state) for _ in range(count)]
    teacher = robot(architecture, architecture.outputs(model))
    activations = [
        record(model, m, architecture.example(), MODULES[kind]) for m in models if kind in MODULES
    ]
    return Fleet(
        architecture.symmetry,
        models,
        robots=[teacher] * count,
        shared=teacher,
        activations=activations,
        **fields,
    )


def strangers(count, **fields):
    """A fleet of models that have nothing in common, each with a robot of another taste."""
    models = [WIDE["mlp"].build(seed).state_dict() for seed in range(count)]
    robots = [robot(WIDE["mlp"], torch.full((40, 2), float(i)).double()) for i in range(count)]
    return Fleet(WIDE["mlp"].symmetry, models, robots=robots, shared=robots[0], **fields)


def outputs(kind, state):
    return WIDE[kind].outputs(WIDE[kind].build(), state)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("count", [2, 4])
def test_matching_gives_back_the_function_of_permuted_copies(kind, count):
    fleet = copies(kind, count)
    merged = git_rebasin(fleet)
    torch.testing.assert_close(outputs(kind, merged.state), outputs(kind, fleet.models[0]))


@pytest.mark.parametrize("kind", WIDE)
def test_fleet_merge_from_matching_gives_back_the_function_of_permuted_copies(kind):
    """Gradients are nearly zero there, and the hard projection takes away the noise."""
    fleet = copies(kind, 3)
    merged = fleet_merge(fleet, descent=Descent(steps=3, rate=0.01), epochs=2)
    torch.testing.assert_close(outputs(kind, merged.state), outputs(kind, fleet.models[0]))


@pytest.mark.parametrize("tau", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("trust", [0.5, 0.9])
def test_a_trusted_start_weighs_as_much_as_it_is_trusted(tau, trust):
    fleet = strangers(1)
    group = fleet.group
    start = group.random(np.random.default_rng(0))
    soft = descend(
        fleet.symmetry, fleet.models[0], start, None, Descent(steps=0, noise=0.0, tau=tau),
        np.random.default_rng(0), trust,
    )  # fmt: skip
    for name, index in start.items():
        chosen = soft[name].gather(1, torch.as_tensor(index).unsqueeze(1))
        torch.testing.assert_close(chosen, torch.full_like(chosen, trust), rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_names_means_nothing(method):
    """Models from files have theirs at random."""
    fleet = copies("mlp", 3)
    generator = np.random.default_rng(1)
    shuffled = [
        {name: model[name] for name in generator.permutation(list(model))} for model in fleet.models
    ]
    assert len({tuple(model) for model in shuffled}) == 3
    one, other = (
        merge(method, each, **options(method)).state
        for each in (fleet, replace(fleet, models=shuffled))
    )
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
    assert torch.equal(flat(fleet.models[0]), flat(shuffled[0]))


def test_fleet_merge_can_start_from_activations():
    fleet = copies("mlp", 3)
    merged = fleet_merge(fleet, start="activations", descent=Descent(steps=1, rate=0.01))
    torch.testing.assert_close(outputs("mlp", merged.state), outputs("mlp", fleet.models[0]))


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_sinkhorn_rebasin_finds_a_permuted_copy_by_its_weights(loss):
    fleet = copies("mlp", 2)
    merged = sinkhorn_rebasin(fleet, loss=loss, descent=Descent(steps=150))
    torch.testing.assert_close(outputs("mlp", merged.state), outputs("mlp", fleet.models[0]))


@pytest.mark.parametrize("loss", ["midpoint", "random_point"])
def test_sinkhorn_rebasin_lowers_the_barrier_by_data_alone(loss):
    fleet = copies("mlp", 2)
    expected = outputs("mlp", fleet.models[0])

    def error(state):
        return float((outputs("mlp", state) - expected).square().mean())

    merged = sinkhorn_rebasin(fleet, loss=loss, descent=Descent(steps=150))
    assert error(merged.state) < 0.5 * error(merge("naive_average", fleet).state)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_changes_nothing_and_is_a_function_of_its_arguments(method):
    fleet = copies("mlp", 3)
    before = [{name: tensor.clone() for name, tensor in m.items()} for m in fleet.models]
    first, second = (merge(method, fleet, **options(method)) for _ in range(2))
    for kept, model in zip(before, fleet.models, strict=True):
        assert all(torch.equal(kept[name], model[name]) for name in kept)
    assert list(first.state) == list(fleet.models[0])
    for name, tensor in first.state.items():
        assert torch.equal(tensor, second.state[name])
        assert tensor.dtype == fleet.models[0][name].dtype and not tensor.requires_grad
    assert len(first.permutations) == 3
    mean = average(fleet.permuted(first.permutations))
    for name in mean:
        torch.testing.assert_close(mean[name], first.state[name])


@pytest.mark.parametrize("method", METHODS)
def test_one_model_is_merged_into_itself(method):
    fleet = copies("mlp", 1)
    merged = merge(method, fleet, **options(method))
    if method != "fleet_merge_soft":  # whose permutation may stay soft
        torch.testing.assert_close(outputs("mlp", merged.state), outputs("mlp", fleet.models[0]))


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"fleet_merge_soft"}))
def test_a_model_without_weight_does_not_matter_in_the_mean(method):
    fleet = strangers(3, weights=[1, 0, 1], activations=[
        record(WIDE["mlp"].build(), WIDE["mlp"].build(s).state_dict(), WIDE["mlp"].example(),
               MODULES["mlp"]) for s in range(3)
    ])  # fmt: skip
    merged = merge(method, fleet, **options(method))
    first, _, third = fleet.permuted(merged.permutations)
    mean = average([first, third])
    for name in mean:
        torch.testing.assert_close(merged.state[name], mean[name])


@settings(max_examples=6)
@given(
    st.permutations(range(4)),
    st.sampled_from(["matching", "identity"]),
    st.sampled_from(["interpolation", "simplex", "average"]),
    st.sampled_from([None, 2]),
)
def test_fleet_merge_does_not_know_the_order_of_models(order, start, point, participants):
    fleet = strangers(4, weights=[1, 2, 3, 4])
    shuffled = Fleet(
        fleet.symmetry,
        [fleet.models[i] for i in order],
        weights=[fleet.weights[i] for i in order],
        robots=[fleet.robots[i] for i in order],
    )
    chosen = {"start": start, "point": point, "participants": participants, "epochs": 2}
    ours, theirs = (fleet_merge(f, descent=SHORT, **chosen) for f in (fleet, shuffled))
    for name in ours.state:
        assert torch.equal(ours.state[name], theirs.state[name])
    for place, i in enumerate(order):
        for name, index in ours.permutations[i].items():
            assert np.array_equal(theirs.permutations[place][name], index)


def test_only_participants_are_asked_and_move():
    fleet = strangers(4)
    merged = fleet_merge(
        fleet, descent=Descent(steps=3), participants=1, epochs=1, start="identity"
    )
    assert merged.traffic.calls == 3
    identity = fleet.group.identity()
    moved = [
        any(not np.array_equal(p[name], identity[name]) for name in p) for p in merged.permutations
    ]
    assert sum(moved) <= 1


@pytest.mark.parametrize("start", ["matching", "identity"])
def test_monotone_fleet_merge_never_ends_above_its_start(start):
    fleet = strangers(3, weights=[1, 2, 3])

    def pooled(state):
        losses = [ask(robot, state, None, gradient=False)[0].loss for robot in fleet.robots]
        return np.average(losses, weights=fleet.weights)

    still = Descent(steps=0, noise=0.0)  # the start itself
    begin = fleet_merge(fleet, start=start, descent=still, epochs=1)
    wild = Descent(steps=2, rate=5.0)
    merged = fleet_merge(fleet, start=start, descent=wild, epochs=2, monotone=True)
    free = fleet_merge(fleet, start=start, descent=wild, epochs=2)
    assert pooled(merged.state) <= pooled(begin.state) + 1e-12
    questions = 3 * (1 + 2 * 3)  # losses at first, and after each model's turn
    assert merged.traffic.calls == free.traffic.calls + questions


def test_mergemany_brings_noisy_copies_together():
    fleet = copies("elman", 4)
    models = [noisy(model, 0.1, seed) for seed, model in enumerate(fleet.models)]
    fleet = Fleet(fleet.symmetry, models, weights=[4, 1, 2, 1])
    aligned = fleet.permuted(git_rebasin(fleet).permutations)
    size = float(flat(models[0]).norm())
    assert all(float((flat(m) - flat(aligned[0])).norm()) < 0.2 * size for m in aligned)


def test_the_projection_after_each_step_descends_too():
    """Algorithm 1 to the letter, with little entropy so that it keeps its place."""
    fleet = copies("mlp", 2)
    descent = Descent(steps=5, tau=0.05, rate=0.1, noise=0.0, projection="after")
    merged = fleet_merge(fleet, descent=descent)
    torch.testing.assert_close(outputs("mlp", merged.state), outputs("mlp", fleet.models[0]))


BAD = {
    "no robots": (lambda f: fleet_merge(Fleet(f.symmetry, f.models)), "no robots to ask"),
    "no data": (
        lambda f: sinkhorn_rebasin(Fleet(f.symmetry, f.models)), "'random_point' needs data"),
    "no activations": (lambda f: git_rebasin(f, by="activations"), "no activations"),
    "no activations to start": (
        lambda f: fleet_merge(f, start="activations"), "no activations"),
    "matching by": (lambda f: git_rebasin(f, by="taste"), "known are 'weights'"),
    "a loss": (lambda f: sinkhorn_rebasin(f, loss="l3"), "known are l1, l2"),
    "a start": (lambda f: fleet_merge(f, start="middle"), "known are identity, matching"),
    "a point": (lambda f: fleet_merge(f, point="end"), "known are interpolation"),
    "trust": (lambda f: fleet_merge(f, trust=1.0), "between 0 and 1"),
    "epochs": (lambda f: fleet_merge(f, epochs=0), "0 epochs"),
    "rounds": (lambda f: git_rebasin(f, rounds=0), "0 rounds"),
    "participants": (lambda f: fleet_merge(f, participants=9), "9 of 2 models"),
    "robots": (lambda f: Fleet(f.symmetry, f.models, robots=f.robots[:1]), "has 1 robots"),
    "weights": (lambda f: Fleet(f.symmetry, f.models, weights=[1]), "Give 2 numbers"),
    "models": (lambda f: Fleet(f.symmetry, []), "no models"),
    "steps": (lambda f: Descent(steps=-1), "out of range"),
    "projection": (lambda f: Descent(projection="before"), "known are 'through'"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_what_a_method_cannot_use_is_explained(what):
    call, why = BAD[what]
    with pytest.raises(FleetError, match=why):
        call(strangers(2))


def test_models_of_another_form_and_unknown_methods_are_refused():
    fleet = strangers(2)
    with pytest.raises(ModelMismatchError):
        Fleet(fleet.symmetry, [fleet.models[0], WIDE["conv"].build().state_dict()])
    with pytest.raises(UnknownNameError, match="did you mean 'git_rebasin'"):
        merge("git_rebasing", fleet)
