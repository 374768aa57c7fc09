"""Tables of attention, and of the residual stream that runs past it.

Heads may be reordered as wholes. Inside each head two more permutations are free: of the units in
which queries meet keys (a scalar product does not know their order), and of the units in which
values reach the output. Hence `head`, `qk@head` and `v@head`. Rotary position encodings pair the
units of queries and keys: fix them (`units=None`) there.

A residual stream adds what many layers write, so all of them share one permutation. It is fixed
unless it is named; permuting it can hurt merging, since it ties so much together.
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
    """`MultiheadAttention`: in_proj_weight (3 E, E), out_proj.weight (E, E), and biases.

    Args:
        module: Its name.
        heads: How many it has.
        head: The name of the heads' permutation; "_head" fixes them.
        units: The names of the units inside a head, of queries and keys and of values; None fixes
            them, and is all that fixed heads allow here.
        residual: What it reads and writes.
        memory: What keys and values are made of, where `kdim` or `vdim` keeps the three weights
            apart: "q_proj_weight", "k_proj_weight", "v_proj_weight".
        bias: Whether it has them.
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
    """Attention made of four `Linear` modules, by their names; otherwise as above.

    Args:
        query: It reads `residual`.
        key: It reads `memory`, or `residual` where that is None.
        value: It reads the same as `key`.
        output: It writes `residual`.
        heads: How many there are, each a run of neighbouring units.
        head: The name of the heads' permutation; "_head" fixes them.
        units: As for `multihead_attention`.
        residual: The stream that is read and added to.
        memory: What is attended to, in cross-attention.
        bias: Whether the modules have one.
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
    """`TransformerEncoderLayer`, its norms first or last.

    Args:
        module: Its name.
        heads: How many it has.
        prefix: Of its permutations: "{prefix}.head", ".qk", ".v" and ".h", of the feedforward part.
        residual: The stream that is read and added to; every layer's is the same.
        units: Whether units inside heads are free.
        bias: Whether it has them.
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
    counted = f"{head}:{heads}"
    if units is None:
        return f"{counted} _k", f"{counted} _k"
    return grouped(counted, units[0]), grouped(counted, units[1])
