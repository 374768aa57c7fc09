"""The law of derived tables, of layers and operations: any permutation leaves the outputs alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributions, nn
from torch.nn.utils import parametrize

from fleet_merging import MergeProblem, derive, merge
from fleet_merging.errors import DerivationError
from fleet_merging.modules import as_arguments, load_tensors, tensors_in

ROWS, STEPS, IMAGE = (6, 3), (6, 4, 3), (4, 3, 8, 8)
WORDS = torch.tensor([[0, 1, 2, 3], [6, 5, 5, 1], [4, 4, 2, 0]])


class Written(nn.Module):
    """Modules, and a forward of them."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.written = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *arguments):
        return self.written(self, *arguments)


def hidden(operation, width=16):
    """Returns a network with an operation on its hidden units, (batch, steps, 16)."""
    into, out = nn.Linear(3, 16), nn.Linear(width, 2)
    return Written(lambda m, x: m.out(operation(torch.tanh(m.into(x)))), into=into, out=out)


def of_images(operation, channels=16, into=16):
    """Returns a network with an operation on its channels."""
    conv, out = nn.Conv2d(3, into, 3, padding=1), nn.Conv2d(channels, 2, 1)
    return Written(lambda m, x: m.out(operation(m.conv(x).relu())), conv=conv, out=out)


def steps_of(h):
    """Returns the largest, smallest and median steps of the largest ones so far."""
    h = h.cummax(1)[0]
    return torch.cat([h.max(1)[0], h.min(1)[0], h.median(1)[0]], -1)


def recurrent(**options):
    core = nn.LSTM(3, 16, batch_first=True, **options)
    sides = 2 if options.get("bidirectional") else 1
    head = nn.Linear(sides * options.get("proj_size", 16), 2)
    return Written(lambda m, x: m.head(m.core(x)[0]), core=core, head=head)


class Computed(nn.Module):
    """A parametrization by a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, weight):
        return self.function(weight)


def parametrized(function):
    """Returns a network of which a square hidden weight is computed, and read beside its input."""
    square = nn.Linear(16, 16)
    parametrize.register_parametrization(square, "weight", Computed(function))

    def forward(m, x):
        h = torch.tanh(m.into(x))
        return m.out(torch.tanh(m.square(h) + h))

    return Written(forward, into=nn.Linear(3, 16), square=square, out=nn.Linear(16, 2))


def messages(m, x):
    h, (sender, receiver) = torch.tanh(m.into(x)), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    sent = torch.tanh(m.message(torch.cat([h[sender], h[receiver]], -1)))
    return m.out(torch.zeros_like(h).index_add(0, receiver, sent) + h)


def first_written(m, x):
    h = torch.tanh(m.into(x))
    h[:, :, :4] = 2 * h[:, :, :4]
    return m.out(h)


def slopes(m, x):
    """Attention with linear biases, so that heads are in a known order (Press et al. 2022)."""
    q, k, v = (f(x).unflatten(-1, (2, 8)).transpose(1, 2) for f in (m.q, m.k, m.v))
    steps = torch.arange(4)
    bias = torch.tensor([0.5, 0.25])[:, None, None] * (steps[None] - steps[:, None])
    return m.out(((q @ k.mT + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))


def parameter(*shape, dtype=None):
    return nn.Parameter(torch.randn(shape, dtype=dtype))


def rows_of(m, x):
    return m.out(torch.tanh(m.into(x)).gather(1, torch.tensor([[[2]], [[0]]] * 3).expand(6, 1, 16)))


def linear(*sizes):
    return nn.Linear(*sizes)


pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")

CASES = {
    "lstm with a projection": (lambda: recurrent(proj_size=8), STEPS, [(8,), (16,)]),
    "lstm with projections, both ways": (
        lambda: recurrent(proj_size=8, num_layers=2, bidirectional=True, dropout=0.1, bias=False),
        STEPS,
        [(8,)] * 4 + [(16,)] * 4,
    ),
    "symmetric": (lambda: parametrized(lambda w: w + w.mT), ROWS, [(16,)]),
    "largest of two": (lambda: hidden(lambda h: h.unflatten(-1, (8, 2)).max(-1)[0], 8), STEPS,
                       [(8,), (8, 2)]),
    "largest units": (lambda: hidden(lambda h: h.topk(4, -1)[0], 4), STEPS, [(16,)]),
    "largest, smallest and median steps": (
        lambda: hidden(steps_of, 48), STEPS, [(16,)],
    ),
    "written in place": (
        lambda: Written(first_written, into=linear(3, 16), out=linear(16, 2)), STEPS,
        [(4,), (12,)],
    ),
    "rows by their places": (
        lambda: Written(rows_of, into=linear(3, 16), out=linear(16, 2)), STEPS, [(16,)],
    ),
    "messages on a graph": (
        lambda: Written(messages, into=linear(3, 16), message=linear(32, 16), out=linear(16, 2)),
        ROWS,
        [(16,)],
    ),
    "a sum without an arrow": (
        lambda: Written(lambda m, x: torch.einsum("bth,ho", torch.tanh(m.into(x)), m.out),
                        into=linear(3, 16), out=parameter(16, 2)),
        STEPS,
        [(16,)],
    ),
    "a module with three names": (
        lambda: Written(lambda m, x: m.out(torch.tanh(m.into(x))), out=linear(16, 2),
                        **dict.fromkeys(["into", "alias", "other"], linear(3, 16))),
        ROWS,
        [(16,)],
    ),
    "heads in a known order": (
        lambda: Written(slopes, **{n: linear(3, 16) for n in "qkv"}, out=linear(16, 2)),
        STEPS,
        [(8,)] * 4,
    ),
}  # fmt: skip


def outputs(model, example):
    with torch.no_grad():
        return [each.clone() for each in tensors_in(model(*as_arguments(example)))]


def assert_law(model, example, symmetry):
    """Asserts that permuted copies compute the same, and merge into the model."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = outputs(model, example)
    group, generator = symmetry.group(state), np.random.default_rng(0)
    copies = [symmetry.apply(group.random(generator), state) for _ in range(2)]
    for each in copies:
        load_tensors(model, each)
        torch.testing.assert_close(outputs(model, example), expected, atol=1e-5, rtol=1e-5)
    load_tensors(model, merge("git_rebasin", MergeProblem(symmetry, [state, *copies])).state)
    torch.testing.assert_close(outputs(model, example), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", CASES)
def test_units_are_found_and_permutations_leave_outputs_alone(kind):
    build, example, sizes = CASES[kind]
    torch.manual_seed(0)
    model = build().eval()
    example = example if isinstance(example, torch.Tensor) else torch.randn(example)
    with torch.no_grad():
        model(example)  # words are scaled in place
    symmetry = derive(model, example, draws=1)
    assert sorted(symmetry.group(model.state_dict()).sizes.values()) == sizes
    assert_law(model, example, symmetry)


MASKS = {
    "by PyTorch": nn.Transformer.generate_square_subsequent_mask,
    "of truth values": lambda n: torch.ones(n, n, dtype=torch.bool).triu(1),
    "of places": lambda n: torch.zeros(n, n).masked_fill_(
        torch.arange(n)[:, None] < torch.arange(n), -torch.inf
    ),
}


@pytest.mark.parametrize("mask", MASKS)
def test_a_transformer_makes_its_mask(mask):
    def forward(m, x, y):
        return m.out(m.core(m.one(x), m.other(y), tgt_mask=MASKS[mask](y.shape[1])))

    torch.manual_seed(0)
    core = nn.Transformer(8, 2, 1, 1, 12, batch_first=True)
    model = Written(forward, core=core, one=linear(3, 8), other=linear(3, 8), out=linear(8, 2))
    example = torch.randn(STEPS), torch.randn(6, 5, 3)
    symmetry = derive(model.eval(), example, draws=1)
    per_attention = [(2,), (2, 4), (2, 4)]
    sizes = sorted([*per_attention * 3, (8,), (12,), (12,)])
    assert sorted(symmetry.group(model.state_dict()).sizes.values()) == sizes
    assert_law(model, example, symmetry)


@dataclasses.dataclass
class Action:
    mean: Any
    value: Any


def squashed(h):
    normal = distributions.Normal(h[..., :2], h[..., 2:].exp(), validate_args=True)
    return distributions.TransformedDistribution(normal, [distributions.TanhTransform()])


def mixture(h):
    parts = distributions.Normal(h[..., None, :2], h[..., None, 2:].exp())
    chosen = distributions.Categorical(logits=torch.zeros(2, 1))
    return distributions.MixtureSameFamily(
        chosen, distributions.Normal(parts.loc.mT, parts.scale.mT)
    )


def guarded(m, x):
    assert not torch.isinf(m.mean).any(), "no statistics yet"
    for _ in range(int(m.times)):
        x = (x - m.mean) / m.deviation
    places = torch.zeros(2)
    places[1:] += 1
    return m.out(torch.tanh(m.into(x))) if places.sum() > 0 else x


def random_branch(m, x):
    return m.out(m.into(x)) if torch.rand(()) < 2 else x


def written_branch(m, x):
    places = torch.zeros(2)
    seen = places[:1]
    places.copy_(x[0, :2])
    return m.out(m.into(x)) if seen.sum() < 9 else x


def of_statistics(forward):
    model = Written(forward, into=linear(3, 16), out=linear(16, 2))
    for name, value in (("mean", torch.ones(3)), ("deviation", torch.full((3,), 2.0))):
        model.register_buffer(name, value)
    model.register_buffer("times", torch.tensor(1))
    return model.eval()


def test_branches_on_numbers_of_the_model_and_of_constants_are_followed():
    model, example = of_statistics(guarded), torch.randn(ROWS)
    symmetry = derive(model, example, draws=1)
    assert list(symmetry.group(model.state_dict()).sizes.values()) == [(16,)]
    assert_law(model, example, symmetry)


@pytest.mark.parametrize("forward", [random_branch, written_branch])
def test_branches_on_other_numbers_are_refused_in_three_lines_and_nothing_is_printed(
    forward, capfd
):
    with pytest.raises(
        DerivationError, match=r"cannot record Written, operation __bool__"
    ) as raised:
        derive(of_statistics(forward), torch.randn(ROWS))
    assert str(raised.value).count("\n") == 2 and len(str(raised.value)) < 600
    assert capfd.readouterr() == ("", "")


HEADS = {
    "mean of a normal": lambda h: distributions.Normal(h, torch.ones(4)).mean,
    "mean beside a deviation": lambda h: distributions.Normal(h[..., :2], h[..., 2:].exp()).mean,
    "normal": lambda h: distributions.Normal(h, torch.ones(4)),
    "categorical": lambda h: distributions.Categorical(logits=h),
    "numbers of a categorical": lambda h: (
        distributions.Categorical(probs=h.softmax(-1)).entropy(),
        distributions.Categorical(logits=h).log_prob(torch.ones(6, 4)),
    ),
    "independent": lambda h: distributions.Independent(distributions.Normal(h, torch.ones(4)), 1),
    "squashed": squashed,
    "covariances": lambda h: distributions.MultivariateNormal(
        h[..., :2], scale_tril=torch.diag_embed(h[..., 2:].exp())
    ),
    "mixture": mixture,
    "beta": lambda h: distributions.Beta(h[..., :2].exp(), h[..., 2:].exp()),
    "dictionary": lambda h: {"action": distributions.Normal(h, torch.ones(4)), "value": h[..., :1]},
    "dataclass": lambda h: Action(h[..., 1:], h[..., :1]),
}


@pytest.mark.parametrize("head", HEADS)
def test_outputs_are_distributions_their_numbers_or_objects(head):
    torch.manual_seed(0)
    into, out = nn.Linear(3, 16), nn.Linear(16, 4)
    model = Written(lambda m, x: HEADS[head](m.out(torch.tanh(m.into(x)))), into=into, out=out)
    example = torch.randn(STEPS)
    symmetry = derive(model.eval(), example, draws=1)
    assert list(symmetry.group(model.state_dict()).sizes.values()) == [(16,)]
    assert_law(model, example, symmetry)
    with pytest.raises(ValueError, match="Expected parameter"):  # as before
        distributions.Normal(torch.tensor(float("nan")), 1.0)
