"""Tables of torch.nn's layers: what to write for each parameter, by the module's name.

Each helper returns the strings of one module; `Symmetry.of` joins them. An axis is given as in
`axes`: a name ("h1"), a fixed axis ("_", "_obs"), or a composite one ("c1 _hw:4", "c | _joints:7").
Activations that act on each unit alike (ReLU, tanh, GELU, SiLU, ...) need no entry, and neither do
dropout, pooling over positions, and softmax; one that pairs units (GLU) makes its axis a product,
"_glu:2 h". Names follow PyTorch 2's documentation of each module.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from fleet_tools.baselines.merging.errors import AxisSyntaxError

Table = dict[str, str]


def linear(module: str, inputs: str, outputs: str, bias: bool = True) -> Table:
    """`Linear`: weight (out, in), bias (out)."""
    table = {f"{module}.weight": f"{_axis(outputs)} {_axis(inputs)}"}
    return table | ({f"{module}.bias": _axis(outputs)} if bias else {})


def embedding(module: str, outputs: str) -> Table:
    """`Embedding`: weight (vocabulary, out); what a word's number means is fixed."""
    return {f"{module}.weight": f"_vocabulary {_axis(outputs)}"}


def prelu(module: str, channels: str = "_") -> Table:
    """`PReLU`: weight (channels), or (1) where all share it."""
    return {f"{module}.weight": _axis(channels)}


def elman(module: str, inputs: str, hidden: Sequence[str], **options: bool) -> Table:
    """`RNN`: as `lstm`, without gates; the paper's eq. (rnn)."""
    return _recurrent(module, inputs, hidden, "", **options)


def lstm(module: str, inputs: str, hidden: Sequence[str], **options: bool) -> Table:
    """`LSTM`: stacked layers, whose gates lie one after another along the first axis.

    Args:
        module: Its name.
        inputs: What its first layer reads.
        hidden: The units of each layer; the outputs are the last one's. The cell has them too.
        options: `bias` (True) and `bidirectional` (False), as the module was made. The backward
            units of a layer "h" are "h_reverse", and its outputs "h | h_reverse".
    """
    return _recurrent(module, inputs, hidden, "_gate:4 ", **options)


def gru(module: str, inputs: str, hidden: Sequence[str], **options: bool) -> Table:
    """`GRU`: as `lstm`, with three gates."""
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
    """`Conv1d` to `Conv3d`: weight (out, in, kernel ...), bias (out); `spatial` is 1 to 3.

    A linear layer after `Flatten` reads "c _hw": every channel's pixels lie together.
    """
    weight = f"{_axis(outputs)} {_axis(inputs)}{' _' * spatial}"
    return {f"{module}.weight": weight} | ({f"{module}.bias": _axis(outputs)} if bias else {})


def conv_transpose(
    module: str, inputs: str, outputs: str, spatial: int = 2, bias: bool = True
) -> Table:
    """`ConvTranspose1d` to `ConvTranspose3d`: weight (in, out, kernel ...)."""
    return conv(module, inputs, outputs, spatial, bias) | {
        f"{module}.weight": f"{_axis(inputs)} {_axis(outputs)}{' _' * spatial}"
    }


def depthwise_conv(module: str, channels: str, spatial: int = 2, bias: bool = True) -> Table:
    """A convolution with as many groups as channels: weight (channels, 1, kernel ...)."""
    return conv(module, "_", channels, spatial, bias)


def grouped_conv(
    module: str,
    groups: str,
    inputs: str,
    outputs: str,
    spatial: int = 2,
    bias: bool = True,
) -> Table:
    """A convolution in groups, which may change places as wholes, as may the channels inside each.

    It reads "groups inputs@groups" and writes "groups outputs@groups".

    Args:
        module: Its name.
        groups: The name of the groups, with their number, such as "g:4".
        inputs: The name of the channels that each group reads.
        outputs: The name of those that each group writes.
        spatial: 1 to 3.
        bias: Whether it has one.
    """
    owner = _name(groups)
    return conv(module, f"{inputs}@{owner}", f"{groups} {outputs}@{owner}", spatial, bias)


def batch_norm(module: str, channels: str, affine: bool = True, tracked: bool = True) -> Table:
    """`BatchNorm1d` to `BatchNorm3d`: per channel, with its running statistics if `tracked`."""
    names = ["weight", "bias"] * affine + ["running_mean", "running_var"] * tracked
    table = {f"{module}.{name}": _axis(channels) for name in names}
    return table | ({f"{module}.num_batches_tracked": ""} if tracked else {})


def layer_norm(module: str, *axes: str, bias: bool = True) -> Table:
    """`LayerNorm` over one or more axes: mean and variance do not know the order of units."""
    names = ["weight", "bias"] if bias else ["weight"]
    return {f"{module}.{name}": " ".join(map(_axis, axes)) for name in names}


def group_norm(module: str, channels: str) -> Table:
    """`GroupNorm`: groups may change places, and channels inside a group, but none may leave it.

    So in every parameter that has them, its channels are what `grouped` writes. With one group, or
    one channel in each, any permutation will do, and channels are a plain name.
    """
    return layer_norm(module, channels)


def grouped(groups: str, units: str) -> str:
    """The axis "groups units@groups": wholes that may be reordered, and the units inside each.

    Args:
        groups: Their name, with their number where shapes do not tell it, such as "head:4".
        units: The name of the units inside.
    """
    return f"{groups} {units}@{_name(groups)}"


def mlp(modules: Sequence[str], axes: Sequence[str], bias: bool = True) -> Table:
    """`Linear` modules, one after another: axes[i] are the inputs of modules[i].

    Raises:
        AxisSyntaxError: There is not one axis more than there are modules.
    """
    return _chain(linear, modules, axes, bias=bias)


def shared_mlp(
    modules: Sequence[str], axes: Sequence[str], norms: Sequence[str] = (), bias: bool = True
) -> Table:
    """PointNet's shared MLP (Qi et al. 2017): `Conv1d` of kernel 1, the same for every point.

    The maximum over points is taken for each channel alone, so what follows it reads axes[-1].
    Where the shared layers are `Linear`, use `mlp`.

    Args:
        modules: The convolutions.
        axes: What each reads, and what the last one writes.
        norms: The `BatchNorm1d` after each of the first convolutions, if any.
        bias: Whether the convolutions have one.

    Raises:
        AxisSyntaxError: There is not one axis more than there are modules, or there are more norms.
    """
    if len(norms) > len(modules):
        raise AxisSyntaxError(f"{len(norms)} norms follow {len(modules)} convolutions. Drop some.")
    table = _chain(conv, modules, axes, spatial=1, bias=bias)
    for norm, channels in zip(norms, axes[1:], strict=False):
        table |= batch_norm(norm, channels)
    return table


def _chain(layer: Callable[..., Table], modules, axes, **options) -> Table:
    if len(axes) != len(modules) + 1:
        raise AxisSyntaxError(
            f"{len(modules)} modules in a row, {', '.join(modules)}, have {len(modules) + 1} axes, "
            f"from their inputs to their outputs; given are {len(axes)}: {', '.join(axes)}."
        )
    table: Table = {}
    for module, (inputs, outputs) in zip(modules, pairwise(axes), strict=True):
        table |= layer(module, inputs, outputs, **options)
    return table


def _axis(text: str) -> str:
    return text if len(text.split()) == 1 else f"({text})"


def _name(text: str) -> str:
    return text.partition(":")[0]
