"""Episodes on other processors: `python benchmarks/processors.py results/expert --emulated`.

Libraries choose their kernels by the reported instruction sets of a processor. Environment
variables
make some of them choose others; QEMU's emulation of a processor makes all of them do so.
"""

import hashlib
import itertools
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy._core._multiarray_umath import (  # pyright: ignore[reportMissingImports]
    __cpu_dispatch__,
    __cpu_features__,
)
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RotationMatrix
from scaffold import Child, answering, main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.config.values import Count
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.evaluation.trial import judge, present_env, run_trial
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.agreement import counts
from fleet_tools.utils import cli

_REPLAY = "--replay"
"""First argument of a process of another kind, which replays the episodes."""

_COLUMNS = (
    *("processor", "kernels with other bits", "episodes"),
    *("same bits", "same outcome", "within", "largest distance"),
)


@dataclass(frozen=True)
class Kind:
    """A kind of processor.

    Attributes:
        variables: Environment variables of the process.
        command: Command before the process's.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()


_NO_AVX2 = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"}
_GENERIC = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}

_OPENBLAS = {"Nehalem": "SSE42", "Haswell": "AVX2", "SkylakeX": "AVX512_SKX"}
"""Kernels of OpenBLAS, and their instruction sets: it takes them on any processor, which may end at
an illegal instruction."""

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
"""Kinds that must replay with the same bits."""

OTHER_BITS = {
    "glibc without AVX2 and FMA": Kind(_NO_AVX2),
}
"""Kinds that may replay with other bits, but the same outcome."""


def _learning(onednn: str, torch: str, openblas: str, others: Mapping[str, str] = {}) -> Kind:
    names = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE")
    return Kind(dict(zip(names, (onednn, torch, openblas), strict=True)) | dict(others))


LEARNING = {
    # Only oneDNN's variable is a maximum; the others would end at an illegal instruction elsewhere.
    "AVX-512 without bfloat16": Kind({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "AVX2 without AVX-512": _learning("AVX2", "avx2", "Haswell"),
    "neither AVX2 nor FMA": _learning("SSE41", "default", "Nehalem", _NO_AVX2),
}
"""Kinds with equal training up to rounding: kernels of PyTorch, oneDNN and BLAS."""


def _emulated(name: str) -> Kind:
    # The code of numba is the kind above's: compiling it under emulation takes minutes.
    return Kind(_GENERIC, ("qemu-x86_64", "-cpu", name))


EMULATED = {
    "Haswell, emulated": _emulated("Haswell"),
    "Haswell without BMI2, emulated": _emulated("Haswell,-bmi2"),
    "Sandy Bridge, emulated": _emulated("SandyBridge"),
    "Nehalem, emulated": _emulated("Nehalem"),
}
"""Kinds that QEMU emulates: with AVX2, FMA and BMI2; without BMI2, which Drake's fast functions
need
and the C library's do not; with neither AVX2, FMA nor BMI2; and without AVX besides."""


class ProcessorsOptions(cli.Options):
    """Replays stored actions of results as on other processors, and compares with this one.

    Prints a row for each kind of processor: libraries with other bits, and episodes with the same
    bits in the last state. Then it counts episodes with the same end (outcome and steps), and among
    these last states within a distance. The largest distance is last.

    Exit codes:
    0: all episodes end alike.
    1: an episode ends differently.
    """

    results: Annotated[tuple[Path, ...], Positional, arg(metavar="RESULT")]
    """Folders of results."""
    episodes: Count = 1
    """Number of episodes of each task from each result."""
    emulated: bool = False
    """Also emulate processors, by qemu-x86_64 (Debian: qemu-user); 10 to 50 times slower."""


def _compare(options: ProcessorsOptions) -> int:
    if options.emulated and shutil.which("qemu-x86_64") is None:
        raise FleetToolsError("There is no qemu-x86_64. Install it (Debian: qemu-user).")

    def replayed(kind: Kind) -> tuple[dict[str, str], list[EpisodeResult]]:
        arguments = [_REPLAY, str(options.episodes), *map(str, options.results)]
        with Child(
            "processors.py", arguments, launcher=kind.command, variables=kind.variables
        ) as child:
            answer = child.answer()
        return answer["kernels"], [*map(EpisodeResult.model_validate_json, answer["episodes"])]

    def rows() -> Iterator[dict[str, Any]]:
        kinds = SAME_BITS | OTHER_BITS | (EMULATED if options.emulated else {})
        kernels, stored = replayed(Kind())
        for name, kind in kinds.items():
            others, again = replayed(kind)
            verdicts = [judge(*pair) for pair in zip(stored, again, strict=True)]
            found = counts(verdict.agreement for verdict in verdicts)
            other = [key for key, bits in kernels.items() if others[key] != bits]
            yield {"processor": name, "other_kernels": other, **found}

    found = report_rows(options, _COLUMNS, rows(), _cells)
    alike = all(row["same_outcome"] == row["episodes"] for row in found)
    return cli.OK if alike else cli.FAILED


def _cells(row: dict[str, Any]) -> list[str]:
    farthest = row["largest_distance_m"]
    return [
        row["processor"],
        ", ".join(row["other_kernels"]) or "none",
        *(str(row[name]) for name in ("episodes", "identical", "same_outcome")),
        f"{row['within']} ({row['within_m']:g} m)",
        "unknown" if farthest is None else f"{farthest:.2g} m",
    ]


# --- In a process of another kind -----------------------------------------------------------


def draw(results: list[Path], episodes: int) -> list[EpisodeResult]:
    """Draws episodes of each task from each result, by task."""
    drawn: list[EpisodeResult] = []
    for folder in results:
        evaluation = load_evaluation(folder)
        for task in dict.fromkeys(each.task for each in evaluation.episodes):
            of_task = [each for each in evaluation.episodes if each.task == task and each.steps]
            generator = np.random.default_rng([len(drawn), episodes])
            chosen = generator.choice(len(of_task), min(episodes, len(of_task)), replace=False)
            drawn += [of_task[k] for k in chosen]
    return sorted(drawn, key=lambda episode: episode.task)


def kernels() -> dict[str, str]:
    """Returns hashes of the results of kernels, by library."""
    generator = np.random.default_rng(0)
    angles = generator.uniform(-4, 4, 20000)
    rotations = [
        RotationMatrix(Quaternion(wxyz=wxyz / math.sqrt(sum(float(w) ** 2 for w in wxyz))))
        for wxyz in generator.normal(size=(1000, 4))
    ]
    products = [(R @ S).matrix() for R, S in itertools.pairwise(rotations)]
    matrix = generator.normal(size=(40, 40))
    computed = {
        "glibc's sin": np.array([math.sin(angle) for angle in angles]),
        "Drake's products of rotations": np.array(products),
        "numpy and BLAS": np.concatenate([np.exp(angles), (matrix @ matrix).ravel()]),
    }
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in computed.items()}


def replay(results: list[Path], episodes: int) -> dict[str, Any]:
    """Returns results of kernels, and of drawn episodes from their actions."""
    protocol = load_protocol(PROTOCOL)
    env_of = present_env(protocol)
    again = [
        run_trial(
            env_of(episode.task), StoredActions(decode_actions(episode.actions)), protocol, episode
        )
        for episode in draw(results, episodes)
    ]
    return {"kernels": kernels(), "episodes": [each.to_json() for each in again]}


main = main_of(__file__, ProcessorsOptions, _compare)

if __name__ == "__main__":
    if sys.argv[1:2] == [_REPLAY]:
        with answering() as answer:
            answer(replay([*map(Path, sys.argv[3:])], int(sys.argv[2])))
    else:
        sys.exit(main())
