"""Affine maps: their matrices, the rows that they read, and both together the layers' outputs."""

import pytest
import torch
from merging_support.problems import WIDE
from torch import nn

from fleet_merging.moments.affine_maps import affine_maps
from fleet_merging.moments.rows import applied_maps, input_rows

LAYERS = {
    "linear": (lambda: nn.Linear(3, 4), (5, 2, 3)),
    "linear without bias": (lambda: nn.Linear(3, 4, bias=False), (5, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2), (3, 2, 9)),
    "conv2d": (lambda: nn.Conv2d(2, 4, (3, 2), padding=(1, 2), dilation=(2, 1)), (3, 2, 7, 6)),
    "conv2d in groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding="same"), (3, 4, 5, 5)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, bias=False), (3, 4, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2, padding=1), (2, 1, 3, 3, 3)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_rows_times_the_matrix_are_the_outputs(kind):
    build, shape = LAYERS[kind]
    torch.manual_seed(0)
    layer = build().double()
    given = torch.randn(shape, dtype=torch.float64)
    ((name, each),) = affine_maps(layer).items()
    rows = input_rows(layer, layer.state_dict(), (given,), [name])[name]
    outputs = nn.functional.pad(rows, (0, 1), value=1.0) @ each.matrix(layer.state_dict())
    expected = layer(given)
    if "conv" in kind or kind == "depthwise":
        expected = expected.movedim(1, -1)
    actual = outputs.transpose(0, 1).flatten(1)  # groups follow one another
    torch.testing.assert_close(actual, expected.reshape(actual.shape))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("begun", [False, True])
def test_rows_of_recurrent_layers_reproduce_each_step(kind, batch_first, begun):
    """By the cells of one step, which are other code than the modules of whole sequences."""
    torch.manual_seed(0)
    kinds = {
        "rnn": (nn.RNN, nn.RNNCell),
        "lstm": (nn.LSTM, nn.LSTMCell),
        "gru": (nn.GRU, nn.GRUCell),
    }
    sequence, cell = kinds[kind]
    module = sequence(3, 5, num_layers=2, batch_first=batch_first).double()
    x = torch.randn((2, 4, 3), dtype=torch.float64)
    first = torch.randn((2, 2, 5), dtype=torch.float64) if begun else torch.zeros(2, 2, 5).double()
    state = (first, 2 * first) if kind == "lstm" else first
    given = x if batch_first else x.transpose(0, 1)
    arguments = (given, state) if begun else (given,)
    maps = affine_maps(module)
    rows = input_rows(module, module.state_dict(), arguments, maps)
    assert set(rows) == set(maps)
    inputs = x
    for layer in range(2):
        step = cell(inputs.shape[2], 5).double()
        step.load_state_dict(
            {name: getattr(module, f"{name}_l{layer}") for name in step.state_dict()}
        )
        before, outputs = first[layer], []
        memory = 2 * first[layer]
        seen = []
        for t in range(4):
            seen.append(torch.cat([inputs[:, t], before], 1))
            if kind == "lstm":
                before, memory = step(inputs[:, t], (before, memory))
            else:
                before = step(inputs[:, t], before)
            outputs.append(before)
        expected = torch.stack(seen, 1).flatten(0, 1)
        parts = [rows[name][0] for name in maps if name.startswith(f".l{layer}")]
        torch.testing.assert_close(torch.cat(parts, 1), expected)
        inputs = torch.stack(outputs, 1)


def test_rows_of_attention_reproduce_its_outputs():
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).double()
    query, memory = (torch.randn((3, n, 8), dtype=torch.float64) for n in (4, 5))
    holder = _Calling(module)
    state = holder.state_dict()
    maps = affine_maps(holder)
    assert list(maps) == [f"inner.{part}" for part in ("query", "key", "value", "out_proj")]
    rows = input_rows(holder, state, (query, memory, memory), maps)
    outputs = {
        name: (nn.functional.pad(rows[name], (0, 1), value=1.0) @ each.matrix(state))[0]
        for name, each in maps.items()
    }
    expected = module(query, memory, memory)[0]
    torch.testing.assert_close(outputs["inner.out_proj"], expected.flatten(0, 1))
    query, key, value = (
        outputs[f"inner.{part}"].unflatten(0, (3, -1)).unflatten(2, (2, 4)).transpose(1, 2)
        for part in ("query", "key", "value")
    )
    attended = nn.functional.scaled_dot_product_attention(query, key, value)
    mixed = attended.transpose(1, 2).flatten(2)
    torch.testing.assert_close(rows["inner.out_proj"][0], mixed.flatten(0, 1))


class _Calling(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *arguments):
        return self.inner(*arguments)[0]


@pytest.mark.parametrize("kind", WIDE)
def test_writing_a_matrix_changes_only_that(kind):
    state = WIDE[kind].build().state_dict()
    maps = applied_maps(WIDE[kind].build(), WIDE[kind].example())
    covered = [name for each in maps for name in each.parameters]
    weights = [name for name in state if state[name].dim() > 1]
    assert set(weights) <= set(covered)
    for each in maps:
        same = each.with_matrix(state, each.matrix(state))
        other = each.with_matrix(state, 2 * each.matrix(state) + 1)
        for name, tensor in state.items():
            torch.testing.assert_close(same[name], tensor)
            assert name in each.parameters or torch.equal(other[name], tensor)
        torch.testing.assert_close(each.matrix(other), 2 * each.matrix(state) + 1)
