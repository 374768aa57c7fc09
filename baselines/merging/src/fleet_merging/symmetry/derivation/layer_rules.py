"""Rules of layers: linear and convolutional, norms, pooling, recurrence and attention."""

import re
from collections import Counter
from collections.abc import Sequence

from fleet_merging.symmetry.derivation.rules import (
    Call,
    broadcast,
    contract,
    fixed,
    mix,
    rule,
    sliced,
    unknown,
)
from fleet_merging.symmetry.derivation.units import (
    Units,
    concatenation,
    confine_to_each_other,
    family,
    fix,
    product,
    regroup,
    unify,
)


@rule("linear")
def _linear(call: Call) -> list[list[Units]]:
    outputs = contract("...i,oi->...o", call["input"], call["weight"])
    return [outputs if call["bias"] is None else broadcast([outputs, call["bias"]])]


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot")
def _matmul(call: Call) -> list[list[Units]]:
    one, other = call.tensors
    return [_product_of_matrices(one, other)]


@rule("addmm", "baddbmm", "addbmm")
def _addmm(call: Call) -> list[list[Units]]:
    added, one, other = call.tensors
    return [broadcast([_product_of_matrices(one, other), added])]


def _product_of_matrices(one: Sequence[Units], other: Sequence[Units]) -> list[Units]:
    rows = "" if len(one) == 1 else "n"
    columns = "" if len(other) == 1 else "m"
    dots = ["..." if len(axes) > 1 else "" for axes in (one, other)]
    letters = f"{dots[0]}{rows}k,{dots[1]}k{columns}->{max(dots)}{rows}{columns}"
    return contract(letters, one, other)


@rule("einsum")
def _einsum(call: Call) -> list[list[Units]]:
    letters = call["equation"].replace(" ", "")
    inputs, arrow, _ = letters.partition("->")
    named = Counter(inputs.replace("...", "").replace(",", ""))
    repeated = any(len(set(term)) < len(term) for term in inputs.replace("...", "").split(","))
    if repeated:
        return unknown(call)
    if not arrow:  # letters that occur once, sorted
        once = sorted(letter for letter, times in named.items() if times == 1)
        letters += "->" + "..." * ("..." in inputs) + "".join(once)
    return [contract(letters, *call["tensors"])]


@rule("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d",
      "conv_transpose3d")  # fmt: skip
def _convolution(call: Call) -> list[list[Units]]:
    image, weight, groups = call["input"], call["weight"], call["groups"]
    transposed = "transpose" in call.name or bool(call.arguments.get("transposed"))
    channel = len(image) - len(weight) + 1
    for unit in (*image[channel + 1 :], *weight[2:]):
        fix(unit, call.reason)
    outer, inner = image[channel], Units(1)
    if groups > 1:
        outer, inner = regroup([outer], [groups, outer.size // groups], call.reason)
        group, each = regroup([weight[0]], [groups, weight[0].size // groups], call.reason)
        unify(outer, group)
        inputs, outputs = (each, weight[1]) if transposed else (weight[1], each)
        unify(inner, inputs)
        confine_to_each_other([outer, inner])
        result = product([outer, outputs])
    else:
        inputs, result = (weight[0], weight[1]) if transposed else (weight[1], weight[0])
        unify(outer, inputs)
        confine_to_each_other([outer])
    spatial = fixed(call.shapes[0][channel + 1 :], call.reason)
    axes = [*image[:channel], result, *spatial]
    confine_to_each_other(axes)
    if call["bias"] is not None:
        unify(axes[channel], call["bias"][0])
    return [axes]


@rule("batch_norm", "_native_batch_norm_legit_no_training", "instance_norm", "prelu")
def _by_channel(call: Call) -> list[list[Units]]:
    image, *parameters = call.tensors
    if call.name == "instance_norm":
        mix(image, range(2, len(image)), keep=True)
    for (unit,) in parameters:
        if unit.size > 1:
            unify(image[1], unit)
    axes = list(image)
    confine_to_each_other(axes)
    return [axes, *(fixed(shape, call.reason) for shape in call.shapes[1:])]


@rule("_weight_norm", "_weight_norm_interface")
def _weight_norm(call: Call) -> list[list[Units]]:
    """Each unit along one axis has a norm, over all others; one for all if `dim` is -1."""
    weight, norms, dim = call["v"], call["g"], call["dim"]
    others = [i for i in range(len(weight)) if i != dim]
    return [broadcast([mix(weight, others, keep=True), norms]), list(norms)][: len(call.shapes)]


@rule("layer_norm", "rms_norm", "native_layer_norm")
def _layer_norm(call: Call) -> list[list[Units]]:
    axes, *parameters = call.tensors
    normalized = range(len(axes) - len(call["normalized_shape"]), len(axes))
    return [broadcast([mix(axes, normalized, keep=True), *parameters])]


@rule("group_norm", "native_group_norm")
def _group_norm(call: Call) -> list[list[Units]]:
    image, *parameters = call.tensors
    groups = call.arguments.get("num_groups", call.arguments.get("group"))
    size = image[1].size
    grouped = regroup([image[1]], [groups, size // groups], call.reason)
    axes = [image[0], *grouped, *image[2:]]
    mix(axes, range(2, len(axes)), keep=True)
    result = [image[0], product(grouped), *image[2:]]
    for (unit,) in parameters:
        unify(result[1], unit)
    confine_to_each_other(result)
    return [result]


@rule(*(f"{kind}_pool{n}d" for n in (1, 2, 3)
        for kind in ("max", "avg", "adaptive_avg", "adaptive_max")),
      *(f"_adaptive_avg_pool{n}d" for n in (2, 3)),
      *(f"max_pool{n}d_with_indices" for n in (2, 3)),
      *(f"lp_pool{n}d" for n in (1, 2, 3)),
      *(f"upsample_{kind}" for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d",
                                        "bilinear2d", "bicubic2d", "trilinear3d")),
      *(f"_upsample_{kind}" for kind in ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d",
                                         "bilinear2d_aa", "bicubic2d_aa")))  # fmt: skip
def _pool(call: Call) -> list[list[Units]]:
    """The last axes are places; their number may change."""
    axes, places = call.tensors[0], int(re.findall(r"(\d)d", call.name)[-1])
    for unit in axes[-places:]:
        fix(unit, call.reason)
    confine_to_each_other(axes[:-places])
    spatial = fixed(call.shapes[0][-places:], call.reason)
    return [[*axes[:-places], *spatial] for _ in call.shapes]


@rule("glu")
def _glu(call: Call) -> list[list[Units]]:
    axes, dim = call["self"], call.dim(call["dim"], call["self"])
    half = call.shapes[0][dim]
    return [broadcast([sliced(axes, dim, 0, half), sliced(axes, dim, half, 2 * half)])]


@rule("scaled_dot_product_attention")
def _attention(call: Call) -> list[list[Units]]:
    query, key, value = call["query"], call["key"], call["value"]
    if call["enable_gqa"]:
        key, value = (_repeated_heads(axes, query[-3].size) for axes in (key, value))
    scores = contract("...tk,...sk->...ts", query, key)
    if call["attn_mask"] is not None:
        scores = broadcast([scores, call["attn_mask"]])
    if call["is_causal"]:
        for unit in scores[-2:]:
            fix(unit, call.reason)
    weights = mix(scores, [len(scores) - 1], keep=True)
    return [contract("...ts,...sv->...tv", weights, value)]


def _repeated_heads(axes: Sequence[Units], heads: int) -> list[Units]:
    repeats = Units(heads // axes[-3].size, within=axes[:-2])
    return [*axes[:-3], product([axes[-3], repeats]), *axes[-2:]]


@rule("rnn_tanh", "rnn_relu", "lstm", "gru")
def _recurrent(call: Call) -> list[list[Units]]:
    """Cells that read their own units: each layer and direction has its own."""
    if "batch_sizes" in call.arguments or len(call["input"]) != 3 or "hx" not in call.arguments:
        return unknown(call)
    states = call["hx"] if call.name == "lstm" else [call["hx"]]
    projects = len(states) == 2 and states[0][2].size != states[1][2].size
    parameters, cells = list(call["params"]), call["num_layers"] * (1 + call["bidirectional"])
    each = (4 if call["has_biases"] else 2) + projects
    if len(parameters) != cells * each:
        return unknown(call)
    axes, inputs = list(call["input"]), call["input"][2]
    for unit in axes[:2]:
        fix(unit, call.reason)
    units: list[list[Units]] = []  # of each cell and each of its states
    for cell in range(cells):
        before = [sliced(state, 0, cell, cell + 1)[2] for state in states]
        own = parameters[cell * each : (cell + 1) * each]
        projection = own.pop() if projects else None
        units.append(_cell(call, inputs, before, projection, *own))
        if (cell + 1) % (cells // call["num_layers"]) == 0:
            inputs = concatenation([own[0] for own in units[-(cells // call["num_layers"]) :]])
    last = [Units(1) for _ in units]
    batch = Units(call.shapes[1][1], call.reason)
    results = [[*axes[:2], inputs]]
    for of_state in zip(*units, strict=True):
        hidden = of_state[0] if cells == 1 else family(last, of_state)
        results.append([concatenation(last), batch, hidden])
    return results


@rule("rnn_tanh_cell", "rnn_relu_cell", "lstm_cell", "gru_cell")
def _single_cell(call: Call) -> list[list[Units]]:
    states = call["hx"] if call.name == "lstm_cell" else [call["hx"]]
    biases = [bias for bias in (call["b_ih"], call["b_hh"]) if bias is not None]
    before = [state[1] for state in states]
    own, *_ = _cell(call, call["input"][1], before, None, call["w_ih"], call["w_hh"], *biases)
    batch = broadcast([call["input"][:1], *(state[:1] for state in states)])
    axes = [*batch, own]
    confine_to_each_other(axes)
    return [axes for _ in states]


def _cell(
    call: Call,
    inputs: Units,
    states: Sequence[Units],
    projection: Sequence[Units] | None,
    into: Sequence[Units],
    own: Sequence[Units],
    *biases: Sequence[Units],
) -> list[Units]:
    """Unifies the inputs and outputs of a cell, and returns the units of each of its states."""
    gates = {"lstm": 4, "gru": 3}.get(call.name.removesuffix("_cell"), 1)
    # A projection has its own units, which the cell reads and returns.
    read, memory = own[1], own[1] if projection is None else projection[1]
    rows = product([Units(gates, call.reason), memory])
    unify(into[1], inputs)
    for row in (into[0], own[0], *(bias[0] for bias in biases)):
        unify(row, rows)
    if projection is not None:
        unify(projection[0], read)
    for unit in (inputs, read, rows):
        confine_to_each_other([unit])
    of_states = [read, memory][: len(states)]
    for unit, state in zip(of_states, states, strict=True):
        unify(unit, state)
    return of_states
