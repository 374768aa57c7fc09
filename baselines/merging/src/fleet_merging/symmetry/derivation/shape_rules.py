"""Rules of elementwise operations, reductions, and rearrangements of a tensor's entries."""

from collections.abc import Sequence

from fleet_merging.symmetry.derivation.rules import (
    Call,
    Shape,
    broadcast,
    fix_dims,
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
    fix,
    product,
    regroup,
)


@rule("add", "clone", "alias", "detach", "dropout", "contiguous", "to", "_to_copy", "type_as",
      "selu", "celu", "mish", "hardtanh", "hardswish", "log_sigmoid", "relu6", "copy",
      "lift_fresh_copy", "softplus", "where", "masked_fill", "feature_dropout", "alpha_dropout",
      "rsub", "square", "complex", "polar", "real", "imag", "conj", "_conj", "conj_physical",
      "resolve_conj", "resolve_neg", "angle", "nan_to_num", "clamp", "lift")  # fmt: skip
def elementwise(call: Call) -> list[list[Units]]:
    """Each entry of the result depends on entries at its own place."""
    return [broadcast(call.tensors)]


@rule("broadcast_tensors")
def _broadcast_tensors(call: Call) -> list[list[Units]]:
    broadcast(call["tensors"])
    return [
        _expanded(axes, shape) for axes, shape in zip(call["tensors"], call.shapes, strict=True)
    ]


@rule("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze",
      "squeeze_dims")  # fmt: skip
def _reshape(call: Call) -> list[list[Units]]:
    return [regroup(call["self"], call.shapes[0], call.reason)]


@rule("permute", "transpose", "t", "movedim", "moveaxis", "mT")
def _permute(call: Call) -> list[list[Units]]:
    axes, arguments = call["self"], call.arguments
    if "dims" in arguments:
        return [[axes[dim] for dim in call.dims("dims", axes)]]
    if "source" in arguments:
        source, target = call.dims("source", axes), call.dims("destination", axes)
        order = [dim for dim in range(len(axes)) if dim not in source]
        for place, dim in sorted(zip(target, source, strict=True)):
            order.insert(place, dim)
        return [[axes[dim] for dim in order]]
    one, other = (call.dim(arguments.get(f"dim{i}", i - 2), axes) for i in (0, 1))
    order = list(range(len(axes)))
    order[one], order[other] = order[other], order[one]
    return [[axes[dim] for dim in order]]


@rule("expand", "expand_as", "broadcast_to")
def _expand(call: Call) -> list[list[Units]]:
    return [_expanded(call["self"], call.shapes[0])]


def _expanded(axes: Sequence[Units], shape: Shape) -> list[Units]:
    result: list[Units] = []
    new = [Units(1)] * (len(shape) - len(axes))
    for unit, size in zip([*new, *axes], shape, strict=True):
        result.append(unit if unit.size == size else Units(size, within=result))
    return result


@rule("repeat", "repeat_interleave")
def _repeat(call: Call) -> list[list[Units]]:
    axes, counts = call["self"], call["repeats"]
    if isinstance(counts, int) and call.arguments.get("dim") is not None:
        dim = call.dim(call["dim"], axes)
        inner = Units(counts, within=axes[: dim + 1])
        return [[product([unit, inner]) if i == dim else unit for i, unit in enumerate(axes)]]
    if isinstance(counts, Sequence) and all(isinstance(count, int) for count in counts):
        axes = [Units(1)] * (len(counts) - len(axes)) + axes
        return [[product([Units(n), unit]) for n, unit in zip(counts, axes, strict=True)]]
    return unknown(call)


@rule("select")
def _select(call: Call) -> list[list[Units]]:
    axes, dim = call["self"], call.dim(call["dim"], call["self"])
    index = call["index"] % axes[dim].size
    rest = sliced(axes, dim, index, index + 1)
    return [rest[:dim] + rest[dim + 1 :]]


@rule("slice", "narrow")
def _slice(call: Call) -> list[list[Units]]:
    axes, dim = call["self"], call.dim(call["dim"], call["self"])
    size, length = axes[dim].size, call.shapes[0][dim]
    if call.arguments.get("step", 1) != 1:
        return [fix_dims(axes, [dim], call)]
    start = call["start"] or 0
    start = max(start + size, 0) if start < 0 else min(start, size)
    return [sliced(axes, dim, start, start + length)]


@rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_chunk", "unsafe_split")
def _split(call: Call) -> list[list[Units]]:
    axes, dim = call["self"], call.dim(call["dim"], call["self"])
    results, offset = [], 0
    for shape in call.shapes:
        results.append(sliced(axes, dim, offset, offset + shape[dim]))
        offset += shape[dim]
    return results


@rule("unbind")
def _unbind(call: Call) -> list[list[Units]]:
    axes, dim = call["self"], call.dim(call["dim"], call["self"])
    rows = [sliced(axes, dim, i, i + 1) for i in range(axes[dim].size)]
    return [row[:dim] + row[dim + 1 :] for row in rows]


@rule("cat", "concat", "concatenate")
def _cat(call: Call) -> list[list[Units]]:
    tensors = [axes for axes in call["tensors"] if len(axes) == len(call.shapes[0])]
    return _joined(tensors, call.dim(call["dim"], tensors[0]))


def _joined(tensors: Sequence[Sequence[Units]], dim: int) -> list[list[Units]]:
    others = broadcast([[Units(1) if i == dim else u for i, u in enumerate(t)] for t in tensors])
    joined = concatenation([axes[dim] for axes in tensors if axes[dim].size > 0])
    result = [joined if i == dim else unit for i, unit in enumerate(others)]
    confine_to_each_other(result)
    return [result]


@rule("stack")
def _stack(call: Call) -> list[list[Units]]:
    axes = broadcast(call["tensors"])
    dim = call["dim"] % (len(axes) + 1)
    return [[*axes[:dim], Units(len(call["tensors"]), call.reason), *axes[dim:]]]


@rule("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "linalg_vector_norm", "norm",
      "prod", "any", "all", "nansum", "nanmean", "max", "min", "median", "nanmedian", "mode",
      "aminmax", "var_mean", "std_mean", "linalg_norm")  # fmt: skip
def _reduce(call: Call) -> list[list[Units]]:
    if "other" in call.arguments:
        return [broadcast(call.tensors)]
    axes = call["self"]
    dims = call.dims("dim", axes)
    mixed = mix(axes, dims)
    if len(call.shapes[0]) != len(axes):
        mixed = [unit for i, unit in enumerate(mixed) if i not in dims]
    if len(call.shapes) == 1 or call.name in ("aminmax", "var_mean", "std_mean"):
        return [mixed] * len(call.shapes)
    if 1 in call.used:  # places along the axis, by which entries may be looked up
        for dim in dims:
            fix(axes[dim], call.reason)
    return [mixed] * len(call.shapes)


@rule("softmax", "log_softmax", "_softmax", "_log_softmax", "softmin", "normalize")
def _softmax(call: Call) -> list[list[Units]]:
    return [mix(call["self"], call.dims("dim", call["self"]), keep=True)]


@rule("constant_pad_nd", "pad")
def _pad(call: Call) -> list[list[Units]]:
    """Equal entries before and after the others along an axis have their own units."""
    axes, sizes = list(call["self"]), call["pad"]
    if min(sizes) < 0 or call.arguments.get("mode", "constant") != "constant":
        dims = [len(axes) - 1 - i // 2 for i, size in enumerate(sizes) if size]
        mix(axes, dims, keep=True)
        return [fix_dims(axes, dims, call)]
    pairs = zip(sizes[::2], sizes[1::2], strict=True)
    for dim, (before, after) in zip(reversed(range(len(axes))), pairs, strict=False):
        parts = [Units(before), axes[dim], Units(after)]
        axes[dim] = concatenation([part for part in parts if part.size > 0])
    confine_to_each_other(axes)
    return [axes]


@rule("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "flip", "roll", "sort", "topk",
      "kthvalue", "argsort", "argmax", "argmin", "msort", "diff")  # fmt: skip
def _ordered(call: Call) -> list[list[Units]]:
    axes, shape = call["self"], call.shapes[0]
    dims = call.dims("dims" if "dims" in call.arguments else "dim", axes)
    mixed = mix(axes, dims, keep=True)
    if call.name in ("sort", "topk", "kthvalue", "msort") and 1 not in call.used:
        # The largest first, in any former order.
        axes = [Units(unit.size) if i in dims else unit for i, unit in enumerate(mixed)]
    if len(shape) != len(axes):
        for dim in dims:
            fix(axes[dim], call.reason)
        return [[unit for i, unit in enumerate(axes) if i not in dims]] * len(call.shapes)
    return [fix_dims(axes, dims, call)] * len(call.shapes)


@rule("tril", "triu", "diag_embed", "diagonal", "diagonal_scatter")
def _diagonal(call: Call) -> list[list[Units]]:
    """The order along both axes of each matrix matters."""
    axes, rank = call["self"], len(call.shapes[0])
    one, other = (call.arguments.get(f"dim{i}", i - 3) for i in (1, 2))
    if call.name == "diag_embed":
        fix(axes[-1], call.reason)
        if (one, other) != (-2, -1):
            return unknown(call)
        return [[*axes[:-1], *fixed(call.shapes[0][-2:], call.reason)]]
    dims = [one % len(axes), other % len(axes)] if "dim1" in call.arguments else [-2, -1]
    for dim in dims:
        fix(axes[dim], call.reason)
    if call.name == "diagonal":
        rest = [unit for i, unit in enumerate(axes) if i not in dims]
        return [[*rest, Units(call.shapes[0][-1], call.reason)]]
    if call.name == "diagonal_scatter":
        *rest, last = call["src"]
        fix(last, call.reason)
        broadcast([[unit for i, unit in enumerate(axes) if i not in dims], rest])
    assert rank == len(axes)
    confine_to_each_other(axes)
    return [list(axes)]


@rule("slice_scatter", "select_scatter")
def _written(call: Call) -> list[list[Units]]:
    """A range of entries along one axis is replaced."""
    axes, source = call["self"], call["src"]
    dim = call.dim(call["dim"], axes)
    size = axes[dim].size
    if call.name == "select_scatter":
        start = call["index"] % size
        stop, source = start + 1, [*source[:dim], Units(1), *source[dim:]]
    elif call["step"] == 1:
        start = call["start"] or 0
        start = max(start + size, 0) if start < 0 else min(start, size)
        stop = start + source[dim].size
    else:
        for axis in (axes[dim], source[dim]):
            fix(axis, call.reason)
        broadcast([[Units(1) if i == dim else u for i, u in enumerate(t)] for t in (axes, source)])
        return [list(axes)]
    bounds = [(0, start), (start, stop), (stop, size)]
    parts = [sliced(axes, dim, *each) for each in bounds if each[0] < each[1]]
    place = sum(each[0] < each[1] for each in bounds[:1])
    parts[place] = source
    return _joined(parts, dim)


@rule("gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy",
      "index_fill")  # fmt: skip
def _placed(call: Call) -> list[list[Units]]:
    """Entries along one axis are read from places, or written to them."""
    axes, index = call["self"], call["index"]
    dim = call.dim(call["dim"], axes)
    fix(axes[dim], call.reason)
    others = [axes]
    for other in (call.arguments.get("src"), call.arguments.get("source")):
        if isinstance(other, list):
            others.append(other)
    if call.name.startswith("index"):
        fix(index[0], call.reason)
    else:
        others.append(index)
    for each in others[1:]:
        if each is not index or call.name != "gather":
            fix(each[dim], call.reason)
        for i, unit in enumerate(each):
            if i != dim and unit.size != axes[i].size:  # a part of the rows
                fix(unit, call.reason)
                fix(axes[i], call.reason)
    rows = [[Units(1) if i == dim else u for i, u in enumerate(each)] for each in others]
    if all([u.size for u in row] == [u.size for u in rows[0]] for row in rows):
        broadcast(rows)
    result = index if call.name == "gather" else axes
    confine_to_each_other(result)
    return [list(result)]


@rule("index", "index_select", "embedding")
def _index(call: Call) -> list[list[Units]]:
    """Entries are looked up by their places; the rest of their axes stays."""
    if call.name == "embedding":
        axes, indices = call["weight"], [call["indices"]]
    elif call.name == "index_select":
        axes = call["self"]
        indices = [None] * call.dim(call["dim"], axes) + [call["index"]]
    else:
        axes, indices = call["self"], call["indices"]
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    dims = list(given)
    looked_up = broadcast(list(given.values()))
    if len(call.shapes[0]) != len(axes) - len(dims) + len(looked_up):  # masks
        return unknown(call)
    for unit in (*(axes[dim] for dim in dims), *looked_up):
        fix(unit, call.reason)
    rest = [unit for dim, unit in enumerate(axes) if dim not in dims]
    place = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    result = [*rest[:place], *looked_up, *rest[place:]]
    confine_to_each_other(result)
    return [result]
