"""Networks of labelled examples: their tables, sizes and names, and what those of texts read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.study_cases import EIGHT, some_digits

from fleet_merging.moments.affine_maps import require_measurable
from fleet_merging.moments.rows import applied_maps
from fleet_merging.symmetry.derive import derive
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.experiments.supervised import networks, training
from fleet_tools.baselines.experiments.supervised.labelled import ImageShape, TextShape
from fleet_tools.baselines.experiments.supervised.networks import IMAGE_NETWORKS, TEXT_NETWORKS
from fleet_tools.errors import UnknownNameError

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((f"mlp-{layers}x{width}", EIGHT) for layers, width in ((1, 8), (2, 5), (8, 16))),
        *((name, shape) for name in IMAGE_NETWORKS for shape in (EIGHT, ImageShape(3, 10, 6, 4))),
        *((name, TextShape(12, 7)) for name in TEXT_NETWORKS),
    ],
)
def test_tables_are_true_of_their_networks(name, shape):
    """Directly: `check` changes weights so much that layers as wide as these saturate."""
    network, data = networks.network(name, shape), some_digits(20, shape)
    state = {
        key: value * (1 + 0.3 * torch.rand_like(value)) if value.is_floating_point() else value
        for key, value in training.initial_weights(network, 0).items()
    }
    group = network.symmetry.group(state)
    permuted = network.symmetry.apply(group.random(np.random.default_rng(0)), state)
    moved = [key for key in state if not torch.equal(state[key], permuted[key])]
    loss = training.evaluate(network, state, data)[0]
    assert training.evaluate(network, permuted, data)[0] == pytest.approx(loss, rel=1e-5)
    broken = permuted | {moved[0]: state[moved[0]]}
    assert abs(training.evaluate(network, broken, data)[0] - loss) > 1e-4


@pytest.mark.slow  # of the table itself: test_tables_are_true_of_their_networks
def test_the_table_of_resnet20_is_the_one_that_its_operations_imply():
    """Independently: derived from what `torch.export` records, with other names of the axes."""
    network = networks.network("resnet20-x2", ImageShape(3, 8, 8, 10))
    module = network.make()
    assert len(module.state_dict()["conv.weight"]) == 32

    def numbered(symmetry: Symmetry) -> dict[str, list[int]]:
        numbers: dict[str, int] = {"_": -1}
        return {
            parameter: [
                numbers.setdefault(factor.name, len(numbers))
                for axis in symmetry.axes[parameter]
                for part in axis
                for factor in part
            ]
            for parameter in module.state_dict()
        }

    derived = numbered(derive(module, torch.rand(4, 192), draws=1))
    assert numbered(network.symmetry) == derived
    assert max(max(axes) for axes in derived.values()) == 3 + 9  # streams, and insides of blocks


@pytest.mark.parametrize(
    "name",
    ["mlp-0x8", "mlp-2x", "mlp-2x8x2", "mlp--1x8", "resnet20-x0", "resnet20-x", "perceptron"],
)
def test_networks_of_no_size_are_refused(name):
    with pytest.raises(UnknownNameError, match="mlp"):
        networks.network(name, EIGHT)


@pytest.mark.parametrize("name", ["mlp-2x8", "resnet20-x2"])
def test_networks_of_images_do_not_learn_texts(name):
    with pytest.raises(UnknownNameError, match="language"):
        networks.network(name, TextShape(12, 7))


@pytest.mark.parametrize("name", ["linear", "language"])
def test_models_of_texts_read_no_later_character(name):
    """Otherwise, the next character at each position would be no prediction."""
    shape = TextShape(12, 7)
    texts = some_digits(30, shape).inputs
    network = networks.linear(shape) if name == "linear" else networks.network(name, shape)
    module = network.make()
    module.load_state_dict(training.initial_weights(network, 0))
    whole = module(texts)
    assert whole.shape == (30, 12, 7)
    for place in (0, 5, 11):
        changed = texts.clone()
        changed[:, place] = (changed[:, place] + 1) % 7
        moved = (module(changed) - whole).abs().amax((0, 2)) > 1e-7
        assert not moved[:place].any() and moved[place]


@given(st.integers(1, 12), st.integers(0, 11), st.integers(0, 100))
def test_the_linear_model_of_texts_reads_the_last_characters(count, place, seed):
    """Independently: characters counted back from a position."""
    texts = torch.from_numpy(np.random.default_rng(seed).integers(5, size=(3, 12)))
    read = networks.LastCharacters(TextShape(12, 5), count)(texts)[:, place].unflatten(1, (-1, 5))
    for back in range(count):
        one_hot = read[:, count - 1 - back]
        if back > place:
            assert not one_hot.any()
        else:
            assert one_hot.argmax(1).tolist() == texts[:, place - back].tolist()
            assert one_hot.sum() == 3


def test_targets_of_texts_are_the_next_characters():
    texts, digits = some_digits(30, TextShape(12, 7)), some_digits(30)
    assert torch.equal(texts.targets[:, :-1], texts.inputs[:, 1:])
    assert torch.equal(texts.targets[:, -1], texts.labels)
    assert torch.equal(digits.targets, digits.labels)


@pytest.mark.parametrize("size", [8, 15, 16, 28, 32])
def test_closed_forms_fit_convolutional_networks_of_each_size(size):
    shape = ImageShape(3, size, size, 10)
    module = networks.network("cnn", shape).make()
    maps = applied_maps(module, some_digits(2, shape).inputs)
    require_measurable(maps, module.state_dict())
