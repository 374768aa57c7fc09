"""Processors that this machine can stand in for: kernels by environment variables, and emulation.

Libraries choose their kernels by the instruction sets that a processor says it has. Variables make
some of them choose others; QEMU's emulation of a processor makes all of them do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numpy._core._multiarray_umath import (  # pyright: ignore[reportMissingImports]
    __cpu_dispatch__,
    __cpu_features__,
)


@dataclass(frozen=True)
class Kind:
    """A kind of processor.

    Attributes:
        variables: Environment variables of the process.
        command: Command before that of the process.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


_NO_AVX2 = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"}
_GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}

_OPENBLAS = {"Nehalem": "SSE42", "Haswell": "AVX2", "SkylakeX": "AVX512_SKX"}
"""Kernels of OpenBLAS, and what each needs: it takes them on any processor, which may end at an
illegal instruction."""

SAME_BITS = {
    **{
        f"OpenBLAS for {name}": Kind({"OPENBLAS_CORETYPE": name})
        for name, needed in _OPENBLAS.items()
        if __cpu_features__.get(needed)
    },
    "numpy without dispatch": Kind(
        {
            "NPY_DISABLE_CPU_FEATURES": " ".join(
                name for name in __cpu_dispatch__ if __cpu_features__.get(name)
            )
        }
    ),
    "numba for any processor": Kind(_GENERIC),
}
"""Kinds by which no bit of a replay may differ."""

OTHER_BITS = {
    "glibc without AVX2 and FMA": Kind(_NO_AVX2),
}
"""Kinds by which bits of a replay may differ, and the outcome may not."""


def _learning(onednn: str, torch: str, openblas: str, others: Mapping[str, str] = {}) -> Kind:
    names = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE")
    return Kind(dict(zip(names, (onednn, torch, openblas), strict=True)) | dict(others))


LEARNING = {
    # Only oneDNN's variable is a maximum; the others would end at an illegal instruction elsewhere.
    "AVX-512 without bfloat16": Kind({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "AVX2 without AVX-512": _learning("AVX2", "avx2", "Haswell"),
    "neither AVX2 nor FMA": _learning("SSE41", "default", "Nehalem", _NO_AVX2),
}
"""Kinds by which networks learn alike up to rounding: kernels of PyTorch, oneDNN and BLAS."""


def _emulated(name: str) -> Kind:
    # The code of numba is that of the kind above: compiling it under emulation takes minutes.
    return Kind(_GENERIC, ("qemu-x86_64", "-cpu", name))


EMULATED = {
    "Haswell, emulated": _emulated("Haswell"),
    "Haswell without BMI2, emulated": _emulated("Haswell,-bmi2"),
    "Sandy Bridge, emulated": _emulated("SandyBridge"),
    "Nehalem, emulated": _emulated("Nehalem"),
}
"""Kinds that QEMU emulates: with AVX2, FMA and BMI2; without BMI2, as Drake's fast functions need
it and those of the C library do not; with neither AVX2, FMA nor BMI2; and without AVX besides."""
