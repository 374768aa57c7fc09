"""Recorded operations of a model, by `torch.export`.

A recording has no numbers, so a branch on numbers ends it. Two common kinds of branches do not
depend on the arguments and are followed. One is on masks and positions that `forward` creates, as
in
`nn.Transformer`. The other is on the model's own tensors, such as a count of steps. The values of
distributions are not validated.
"""

import contextlib
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributions import Distribution
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from fleet_merging.errors import DerivationError
from fleet_merging.modules import (
    as_arguments,
    copied,
    first_line,
    require_dense,
    tensors_in,
    tensors_of,
    uncompiled,
)

PREFIX = "model."
"""Prefix of the names of the model's tensors in a recording."""

_READS = {"__bool__", "__int__", "__float__", "__index__", "item", "tolist", "numpy", "equal",
          "allclose", "is_nonzero"}  # fmt: skip
_OF_SHAPES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
              "new_tensor"}  # fmt: skip
_IN_PLACE = {"__setitem__", "__set__", *(f"__i{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"))}  # fmt: skip

REMEDY = (
    "Methods that permute nothing need no table (naive_average, ensemble, ties with a base); for "
    "others write it by hand, and give it as `symmetry` (see `symmetry.layers`)."
)
"""Remedy for a model without a derived table."""


def record(
    model: torch.nn.Module, example: Any, output: Callable[[Any], Any]
) -> torch.export.ExportedProgram:
    """Records the operations of a copy of a model in evaluation mode.

    Raises a `DerivationError`, with the module and the operation, if operations depend on numbers
    of the arguments, or are not PyTorch's.
    """
    require_dense(model.state_dict(), f"The {type(model).__name__}")
    known = _KnownValues()
    selected = _Selected(copied(model), output, known).eval()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operation for a whole layer
    try:
        with torch.no_grad(), uncompiled(), _unvalidated(), _quiet():
            program = torch.export.export(selected, as_arguments(example), strict=False)
            program = program.run_decompositions({})  # without operations in place
    except Exception as error:  # torch.export raises any type
        module, line = _place(selected.model, error)
        operation = f", operation {known.failed}" if known.failed else ""
        raise DerivationError(
            f"No table can be derived: torch.export cannot record {module}{operation}{line}\n"
            f"  ({type(error).__name__}: {first_line(error)})\n"
            "Its operations depend on numbers of the example, or are not PyTorch's. " + REMEDY
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    if known.foreign:
        raise DerivationError(
            f"{type(model).__name__} reads learned parameters that are not in its state dict, such "
            f"as one of the shape {tuple(known.foreign[0].shape)}, so a merge would miss them. "
            "Register their modules (`nn.ModuleList`), and read them by `self`, no closure."
        )
    return program


class _Selected(torch.nn.Module):
    """A model that returns the tensors of a part of its outputs, and the tensors in branches."""

    def __init__(
        self, model: torch.nn.Module, output: Callable[[Any], Any], known: "_KnownValues"
    ) -> None:
        super().__init__()
        self.model, self.output, self.known = model, output, known
        self.own = tensors_of(model)  # read before any is a tensor without numbers

    def forward(self, *arguments: Any) -> Any:
        for name, tensor in tensors_of(self.model, keep_vars=True).items():
            self.known.values[tensor] = (self.own[name], True)
        with self.known:
            outputs = list(tensors_in(self.output(self.model(*arguments))))
        return outputs, self.known.decided


class _KnownValues(TorchFunctionMode):
    """Computes the values of tensors that do not depend on the arguments, during a recording.

    Attributes:
        values: Values, and whether they depend on the model's tensors.
        decided: Tensors that depend on the model's, and had their values read.
        foreign: Learned parameters that are not the model's.
        failed: Name of the operation that could not be recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.values = WeakTensorKeyDictionary()
        self.decided: list[torch.Tensor] = []
        self.foreign: list[torch.nn.Parameter] = []
        self.failed: str | None = None
        self._random = torch.get_rng_state()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        given = [each for each in pytree.tree_leaves((args, kwargs)) if _is_tensor(each)]
        for each in given:
            if isinstance(each, torch.nn.Parameter) and each.requires_grad:
                self.foreign += [each] if each not in self.values else []
        known = name in _OF_SHAPES or all(each in self.values for each in given)
        if name in _READS and given and known:
            value, random = self._computed(func, args, kwargs)
            if not random and value is not None:
                self.decided += [each for each in given if self.values[each][1]]
                return value
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.failed = self.failed or name
            raise
        made = [each for each in pytree.tree_leaves(result) if _is_tensor(each)]
        changes = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        if known and (made or changes):
            value, _ = self._computed(func, args, kwargs)
            values = [each for each in pytree.tree_leaves(value) if _is_tensor(each)]
            of_model = any(self.values[each][1] for each in given if each in self.values)
            if [each.shape for each in values] == [each.shape for each in made]:
                for each, value in zip(made, values, strict=True):
                    self.values[each] = (value, of_model)
        elif changes or "out" in kwargs:
            self._forget(kwargs.get("out", given[0] if given else None))
        return result

    def _computed(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """Returns a value, None if it cannot be computed, and whether it is random."""

        def value_of(each: Any) -> Any:
            if not _is_tensor(each):
                return each
            if each in self.values:
                return self.values[each][0]
            return torch.empty(each.shape, dtype=each.dtype, device=each.device)

        try:
            with torch._C.DisableTorchFunction(), _disable_current_modes():
                value = func(*pytree.tree_map(value_of, args), **pytree.tree_map(value_of, kwargs))
                return value, not torch.equal(torch.get_rng_state(), self._random)
        except Exception:  # then it is recorded, or fails there
            return None, True

    def _forget(self, changed: Any) -> None:
        """Forgets a tensor with a changed value, and all tensors that share its memory."""
        for each in [changed] if _is_tensor(changed) and changed in self.values else []:
            memory = self.values[each][0].untyped_storage().data_ptr()
            for other, (value, _) in list(self.values.items()):
                if value.untyped_storage().data_ptr() == memory:
                    del self.values[other]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@contextlib.contextmanager
def _unvalidated() -> Iterator[None]:
    """Makes distributions without checks of their values, even if requested."""
    former = Distribution._validate_args
    unvalidated = property(lambda self: False, lambda self, value: None)
    Distribution._validate_args = unvalidated  # type: ignore[assignment]
    try:
        yield
    finally:
        Distribution._validate_args = former


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Runs `torch.export` without the pages of graphs that it prints on errors."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    former = log.disabled
    log.disabled = True
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            torch.random.fork_rng(devices=[]),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.disabled = former


def _place(model: torch.nn.Module, error: BaseException) -> tuple[str, str]:
    """Returns the innermost module in which an error arose, and the line of its class."""
    names = {each: name for name, each in model.named_modules()}
    module, line = model, ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and owner in names:
            module = owner
            if "torch/nn/modules/module.py" not in frame.f_code.co_filename:
                line = f", {frame.f_code.co_filename}:{number}"
    name = names[module]
    return f"the {type(module).__name__} {name}" if name else type(model).__name__, line
