"""Derived tables of networks of other shapes, what is fixed where little is known, and errors."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from fleet_merging.errors import DerivationError
from fleet_merging.symmetry.derive import derive, explain

WORDS = torch.tensor([[0, 1, 2, 3, 4], [6, 5, 5, 1, 0]])


class SmallGPT(nn.Module):
    """One layer with queries, keys and values of one matrix, a gated unit, and tied words."""

    def __init__(self, packing="split"):
        super().__init__()
        self.packing = packing
        self.words, self.places = nn.Embedding(7, 8), nn.Parameter(torch.randn(1, 5, 8))
        self.norm1, self.qkv, self.mix = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm2, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(6, 8)
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        x = self.words(words) + self.places
        qkv, (b, t) = self.qkv(self.norm1(x)), words.shape
        if self.packing == "split":
            q, k, v = (part.view(b, t, 2, 4).transpose(1, 2) for part in qkv.split(8, -1))
        elif self.packing == "first":
            q, k, v = qkv.reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (part.transpose(1, 2) for part in qkv.view(b, t, 2, 12).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) / 2
        unseen = torch.tril(torch.ones(t, t)) == 0
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        x = x + self.mix((weights @ v).transpose(1, 2).reshape(b, t, 8))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return self.head(x + self.down(functional.silu(gate) * value))


@pytest.mark.parametrize(
    ("packing", "sizes"),
    [
        ("split", [(2,), (2, 4), (2, 4), (6,), (8,)]),
        ("first", [(2,), (2, 4), (2, 4), (6,), (8,)]),
        ("inside heads", [(2,), (2, 4), (6,), (8,)]),  # (head qk | qk | v) is no axis string
    ],
)
def test_a_small_gpt_with_tied_words(packing, sizes):
    model = SmallGPT(packing)
    symmetry = derive(model, WORDS, draws=1)
    assert sorted(symmetry.group(model.state_dict()).sizes.values()) == sizes
    assert symmetry.axes["words.weight"] == symmetry.axes["head.weight"]


class GroupedQueries(nn.Module):
    """Four heads of queries for two of keys and values, with rotary positions if wanted."""

    def __init__(self, how, rotary=False):
        super().__init__()
        self.how, self.rotary = how, rotary
        self.q, self.k, self.v = nn.Linear(6, 16), nn.Linear(6, 8), nn.Linear(6, 8)
        self.o = nn.Linear(16, 6)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.rotary:
            angles = (torch.arange(t)[:, None] * torch.tensor([1.0, 0.1])).repeat(1, 2)
            q, k = (
                y * angles.cos() + torch.cat([-y[..., 2:], y[..., :2]], -1) * angles.sin()
                for y in (q, k)
            )
        if self.how == "expand":
            k, v = (y[:, :, None].expand(b, 2, 2, t, 4).reshape(b, 4, t, 4) for y in (k, v))
        if self.how == "repeat":
            k, v = (y.repeat_interleave(2, 1) for y in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, enable_gqa=self.how == "option")
        return self.o(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("how", ["option", "expand", "repeat"])
def test_heads_of_queries_stay_with_their_keys(how):
    table = derive(GroupedQueries(how), torch.randn(2, 5, 6), draws=1).table()
    assert table["q.bias"] == "(q.group:2 q.inner@q.group:2 q.inner_2@q.group:4)"
    assert table["k.bias"] == "(q.group:2 q.inner_2@q.group:4)"
    assert table["o.weight"] == "_ (q.group:2 q.inner@q.group:2 v.inner@q.group:4)"


def test_rotary_units_are_fixed_and_heads_free():
    table = derive(GroupedQueries("option", rotary=True), torch.randn(2, 5, 6), draws=1).table()
    assert table["k.bias"] == "(q.group:2 _:4)"
    assert table["v.bias"] == "(q.group:2 v.inner@q.group:4)"


class Inverted(nn.Sequential):
    """MobileNetV2's block: expansion, a depthwise convolution, and back."""

    def __init__(self, inputs, outputs):
        wide = 2 * inputs
        super().__init__(
            nn.Conv2d(inputs, wide, 1), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.residual = inputs == outputs

    def forward(self, input):
        output = super().forward(input)
        return input + output if self.residual else output


def test_a_small_mobilenet():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), Inverted(4, 6), Inverted(6, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(), nn.Linear(6, 2),
    )  # fmt: skip
    with torch.no_grad():
        for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.bias.uniform_(0.5, 1)
    symmetry = derive(model, torch.randn(3, 3, 8, 8), draws=1)
    sizes = sorted(symmetry.group(model.state_dict()).sizes.values())
    assert sizes == [(4,), (6,), (8,), (12,)]
    assert symmetry.table()["1.3.weight"] == "layer1.0 _ _ _"


class Summed(nn.Module):
    """Sums its hidden units one after the other, so that their order matters; a layer is unused."""

    def __init__(self):
        super().__init__()
        self.into, self.through, self.out = nn.Linear(3, 6), nn.Linear(6, 5), nn.Linear(5, 2)
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        return self.out(torch.relu(self.through(self.into(x).cumsum(-1))))


def test_units_are_fixed_where_an_operation_orders_them_and_notes_say_so():
    derivation = explain(Summed(), torch.randn(4, 3), draws=1)
    table = derivation.symmetry.table()
    assert table["into.weight"] == "_ _" and table["out.weight"] == "_ through"
    assert "aten.cumsum" in derivation.notes["into.bias"]
    assert derivation.notes["unused.weight"] == ("not read for this example",)


def test_a_model_that_depends_on_numbers_is_refused():
    class Branching(nn.Linear):
        def forward(self, input):
            return super().forward(input) if input.sum() > 0 else input[:, :2]

    with pytest.raises(DerivationError, match=r"cannot record Branching.*\n.*\n.*write it by hand"):
        derive(Branching(3, 2), torch.randn(4, 3))
