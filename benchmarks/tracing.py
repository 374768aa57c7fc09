"""Which functions of the project an action passes; see `merge_trace.py`, `traced_round.py`."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
_BENCHMARKS = ROOT / "benchmarks"


def traced(action: Callable[[], object]) -> set[tuple[str, str]]:
    """Returns the files and qualified names of the project's functions that an action calls.

    Calls are seen by `sys.setprofile`. A function is counted once, whatever its number of calls;
    functions, comprehensions and lambdas inside of another count as the one around them.
    """
    found: set[tuple[Path, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not code.co_filename.startswith("<"):  # of generated code
            found.add((Path(code.co_filename), code.co_qualname.partition(".<locals>")[0]))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    own = {(path.resolve(), name) for path, name in found}
    return {
        (str(path.relative_to(ROOT)), name)
        for path, name in own
        if path.is_relative_to(ROOT) and not path.is_relative_to(_BENCHMARKS)
    }
