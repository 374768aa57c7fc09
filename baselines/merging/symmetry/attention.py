"""Tables of attention layers, and of the residual stream around them.

Heads may be reordered as a whole. Inside each head two more permutations are free: that of the
units in which queries meet keys (a scalar product does not depend on their order), and that of the
units in which values reach the output. Hence `head`, `qk@head` and `v@head`. Rotary position
encodings pair the units of queries and keys, which must then be fixed (`units=None`).

A residual stream adds the outputs of many layers, so all of them share one permutation. It is fixed
unless it is named; permuting it can make merging worse, since it couples so many layers.
"""

from fleet_tools.baselines.merging.symmetry.layers import Table, grouped, layer_norm, linear


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
        units: Names of the units inside a head, of queries and keys and of values; None fixes
            them, as is necessary if the heads are fixed.
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

    Args:
        query: Name of the queries' module, whose input is `residual`.
        key: Name of the keys' module, whose input is `memory`, or `residual` if that is None.
        value: Name of the values' module, whose input is that of the keys.
        output: Name of the output's module, which writes to `residual`.
        heads: Number of heads, each a range of neighboring units.
        head: Name of the heads' permutation; "_head" fixes them.
        units: See `multihead_attention`.
        residual: Axis of the stream from which is read and to which is added.
        memory: Axis of the input of keys and values in cross-attention.
        bias: Whether the modules have biases.
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
    bias: bool = True,
) -> Table:
    """Returns the table of a `TransformerEncoderLayer`, with its norms first or last.

    Args:
        module: Name of the module.
        heads: Number of heads.
        prefix: Prefix of its permutations: "{prefix}.head", ".qk", ".v", and ".h" of the
            feedforward part.
        residual: Axis of the residual stream, the same for all layers.
        units: Whether units inside heads are free.
        bias: Whether it has biases.
    """
    inner = (f"{prefix}.qk", f"{prefix}.v") if units else None
    return (
        multihead_attention(
            f"{module}.self_attn", heads, f"{prefix}.head", inner, residual, bias=bias
        )
        | linear(f"{module}.linear1", residual, f"{prefix}.h", bias)
        | linear(f"{module}.linear2", f"{prefix}.h", residual, bias)
        | layer_norm(f"{module}.norm1", residual, bias=bias)
        | layer_norm(f"{module}.norm2", residual, bias=bias)
    )


def _units(head: str, heads: int, units: tuple[str, str] | None) -> tuple[str, str]:
    sized = f"{head}:{heads}"
    if units is None:
        return f"{sized} _k", f"{sized} _k"
    return grouped(sized, units[0]), grouped(sized, units[1])
