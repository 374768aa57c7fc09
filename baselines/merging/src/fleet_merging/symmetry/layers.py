"""Tables of the layers of torch.nn, by the names of their modules.

Each function returns the axis strings of one module; `Symmetry.of` joins them. An axis is given as
in `axes`: a name ("h1"), a fixed axis ("_", "_obs"), or a composite one ("c1 _hw:4",
"c | _joints:7"). Activations that act on each unit in the same way (ReLU, tanh, GELU, SiLU, ...)
need no entry, nor do dropout, pooling over positions, and softmax. An activation that pairs units
(GLU) makes its axis a product, "_glu:2 h". Parameters are named as in PyTorch 2's documentation.

Heads of attention may be reordered as a whole. Inside each head two more permutations are free: of
the units where queries meet keys, and of the units of values. A scalar product does not depend on
the order of its terms. Hence `head`, `qk@head` and `v@head`. Rotary position encodings pair the
units of queries and keys, which must then be fixed (`units=None`).

A residual stream adds the outputs of many layers, so all of them share one permutation. It is fixed
unless it is named; permuting it can make merging worse, since it couples so many layers.
"""

from collections.abc import Sequence
from itertools import pairwise

from fleet_merging.errors import AxisSyntaxError

Table = dict[str, str]
"""Axis strings by the names of the state dict."""


def linear(module: str, inputs: str, outputs: str, bias: bool = True) -> Table:
    """Returns the table of a `Linear`: weight (out, in), bias (out)."""
    table = {f"{module}.weight": f"{_axis(outputs)} {_axis(inputs)}"}
    return table | ({f"{module}.bias": _axis(outputs)} if bias else {})


def embedding(module: str, outputs: str) -> Table:
    """Returns the table of an `Embedding`: weight (vocabulary, out); the vocabulary is fixed."""
    return {f"{module}.weight": f"_vocabulary {_axis(outputs)}"}


def elman(module: str, inputs: str, hidden: Sequence[str], **options: bool) -> Table:
    """Returns the table of an `RNN`, the paper's eq. (rnn); arguments as for `lstm`."""
    return _recurrent(module, inputs, hidden, "", **options)


def lstm(module: str, inputs: str, hidden: Sequence[str], **options: bool) -> Table:
    """Returns the table of an `LSTM`, with gates one after another along the first axis.

    `inputs` is the axis of the first layer's input. `hidden` names the units of each layer, which
    are also the cell's; the output is the last layer's. Options are `bias` (True) and
    `bidirectional` (False), as for the module. The backward units of a layer "h" are "h_reverse",
    and its output is "h | h_reverse".
    """
    return _recurrent(module, inputs, hidden, "_gate:4 ", **options)


def gru(module: str, inputs: str, hidden: Sequence[str], **options: bool) -> Table:
    """Returns the table of a `GRU`, with three gates; arguments as for `lstm`."""
    return _recurrent(module, inputs, hidden, "_gate:3 ", **options)


def _recurrent(
    module: str,
    inputs: str,
    hidden: Sequence[str],
    gates: str,
    bias: bool = True,
    bidirectional: bool = False,
) -> Table:
    table: Table = {}
    for layer, units in enumerate(hidden):
        directions = {"": units} | ({"_reverse": f"{units}_reverse"} if bidirectional else {})
        for suffix, h in directions.items():
            table[f"{module}.weight_ih_l{layer}{suffix}"] = f"({gates}{h}) {_axis(inputs)}"
            table[f"{module}.weight_hh_l{layer}{suffix}"] = f"({gates}{h}) {h}"
            if bias:
                table[f"{module}.bias_ih_l{layer}{suffix}"] = f"({gates}{h})"
                table[f"{module}.bias_hh_l{layer}{suffix}"] = f"({gates}{h})"
        inputs = " | ".join(directions.values())
    return table


def conv(module: str, inputs: str, outputs: str, spatial: int = 2, bias: bool = True) -> Table:
    """Returns the table of a `Conv1d`, `Conv2d` or `Conv3d`, by its number of spatial dimensions.

    Its parameters are weight (out, in, kernel ...) and bias (out). Axes are of channels. A
    linear layer after `Flatten` has the input "c _hw", since the pixels of a channel are
    contiguous.
    """
    weight = f"{_axis(outputs)} {_axis(inputs)}{' _' * spatial}"
    return {f"{module}.weight": weight} | ({f"{module}.bias": _axis(outputs)} if bias else {})


def batch_norm(module: str, channels: str, affine: bool = True, tracked: bool = True) -> Table:
    """Returns the table of a `BatchNorm1d` to `3d`, with its running statistics if `tracked`."""
    names = ["weight", "bias"] * affine + ["running_mean", "running_var"] * tracked
    table = {f"{module}.{name}": _axis(channels) for name in names}
    return table | ({f"{module}.num_batches_tracked": ""} if tracked else {})


def layer_norm(module: str, *axes: str, bias: bool = True) -> Table:
    """Returns the table of a `LayerNorm` over axes; mean and variance ignore the order of units."""
    names = ["weight", "bias"] if bias else ["weight"]
    return {f"{module}.{name}": " ".join(map(_axis, axes)) for name in names}


def grouped(groups: str, units: str) -> str:
    """Returns the axis "groups units@groups": reordered groups, with reordered units inside each.

    Such is the axis of channels of a `GroupNorm`, in every parameter that has it. Exceptions are a
    single group, and groups of one channel. Groups have their number if shapes do not determine it:
    "head:4".
    """
    return f"{groups} {units}@{groups.partition(':')[0]}"


def mlp(modules: Sequence[str], axes: Sequence[str], bias: bool = True) -> Table:
    """Returns the table of consecutive `Linear` modules; axes[i] is the input of modules[i]."""
    if len(axes) != len(modules) + 1:
        raise AxisSyntaxError(
            f"{len(modules)} consecutive modules, {', '.join(modules)}, have {len(modules) + 1} "
            f"axes, from their inputs to their outputs; given: {len(axes)}: {', '.join(axes)}."
        )
    table: Table = {}
    for module, (inputs, outputs) in zip(modules, pairwise(axes), strict=True):
        table |= linear(module, inputs, outputs, bias)
    return table


def multihead_attention(
    module: str,
    heads: int,
    head: str = "head",
    units: tuple[str, str] | None = ("qk", "v"),
    residual: str = "_residual",
    memory: tuple[str, str] | None = None,
    bias: bool = True,
) -> Table:
    """Returns the table of a `MultiheadAttention`.

    Its parameters are in_proj_weight (3 E, E), out_proj.weight (E, E), and biases.

    Args:
        module: Name of the module.
        heads: Number of heads.
        head: Name of the heads' permutation; "_head" fixes them.
        units: Names of the units inside a head: of queries and keys, and of values. None fixes
            them, which fixed heads require.
        residual: Axis of its input and output.
        memory: Axes of the inputs of keys and values, if `kdim` or `vdim` makes three separate
            weights: "q_proj_weight", "k_proj_weight", "v_proj_weight".
        bias: Whether it has biases.
    """
    qk, v = _units(head, heads, units)
    joined = f"({qk} | {qk} | {v})"
    if memory is None:
        table = {f"{module}.in_proj_weight": f"{joined} {residual}"}
    else:
        axes = zip("qkv", (qk, qk, v), (residual, *memory), strict=True)
        table = {f"{module}.{name}_proj_weight": f"({out}) {into}" for name, out, into in axes}
    table |= {f"{module}.in_proj_bias": joined} if bias else {}
    return table | linear(f"{module}.out_proj", v, residual, bias)


def attention(
    query: str,
    key: str,
    value: str,
    output: str,
    heads: int,
    head: str = "head",
    units: tuple[str, str] | None = ("qk", "v"),
    residual: str = "_residual",
    memory: str | None = None,
    bias: bool = True,
) -> Table:
    """Returns the table of an attention layer made of four `Linear` modules.

    Queries read `residual`, to which the output writes, and keys and values read `memory` in
    cross-attention. Each head is a range of neighboring units. See `multihead_attention` for the
    rest.
    """
    qk, v = _units(head, heads, units)
    return (
        linear(query, residual, qk, bias)
        | linear(key, memory or residual, qk, bias)
        | linear(value, memory or residual, v, bias)
        | linear(output, v, residual, bias)
    )


def transformer_encoder_layer(
    module: str,
    heads: int,
    prefix: str,
    residual: str = "_residual",
    units: bool = True,
) -> Table:
    """Returns the table of a `TransformerEncoderLayer`, with its norms first or last.

    Its permutations are "{prefix}.head", ".qk" and ".v", free if `units` is true, and ".h" of the
    feedforward part. The axis of the residual stream is the same for all layers.
    """
    inner = (f"{prefix}.qk", f"{prefix}.v") if units else None
    return (
        multihead_attention(f"{module}.self_attn", heads, f"{prefix}.head", inner, residual)
        | linear(f"{module}.linear1", residual, f"{prefix}.h")
        | linear(f"{module}.linear2", f"{prefix}.h", residual)
        | layer_norm(f"{module}.norm1", residual)
        | layer_norm(f"{module}.norm2", residual)
    )


def _axis(text: str) -> str:
    return text if len(text.split()) == 1 else f"({text})"


def _units(head: str, heads: int, units: tuple[str, str] | None) -> tuple[str, str]:
    sized = f"{head}:{heads}"
    if units is None:
        return f"{sized} _k", f"{sized} _k"
    return grouped(sized, units[0]), grouped(sized, units[1])
