"""Resources of this machine that the process may use: cores, memory, disk."""

import contextlib
import os
import platform
import re
import resource
import shutil
from pathlib import Path

GIB = 2**30

_VECTOR = re.compile(r"s*sse\w+|avx\w*|fma\w*|bmi\w+|f16c|asimd\w*|sve\w*")
_CGROUP = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Returns the number of cores that this process may use; a container's limit counts."""
    from loky import cpu_count

    return cpu_count()


def available_memory() -> int:
    """Returns the bytes of memory that this process can still get; a container's limit counts."""
    import psutil

    left = psutil.virtual_memory().available
    for limit, used in [
        ("memory.max", "memory.current"),  # cgroup 2, then 1
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ]:
        most, now = _number(limit), _number(used)
        if most is not None and now is not None:
            left = min(left, most - now)
    return max(left, 0)


def limit_memory() -> None:
    """Lets allocations of this process fail before they take memory that is not there."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (available_memory(), resource.RLIM_INFINITY))


def total_memory() -> int:
    """Returns the bytes of memory of the machine."""
    import psutil

    return psutil.virtual_memory().total


def free_disk(folder: Path) -> int:
    """Returns the bytes that can be written into a folder."""
    return shutil.disk_usage(folder).free


def processor() -> str:
    """Returns the name of the processor, or the empty string where it is unknown."""
    return _cpuinfo("model name")


def vector_instructions() -> str:
    """Returns the extensions by which libraries choose arithmetic kernels, such as "avx2 fma".

    The empty string stands for what is unknown.
    """
    flags = (_cpuinfo("flags") or _cpuinfo("Features")).split()
    return " ".join(sorted({flag for flag in flags if _VECTOR.fullmatch(flag)}))


def c_library() -> str:
    """Returns the C library, whose functions round as its version does, such as "glibc 2.36"."""
    return " ".join(platform.libc_ver()).strip()


def machine_name() -> str:
    """Returns the processor and its number of cores, for reports of speed."""
    return f"{processor() or platform.machine()}, {os.cpu_count()} cores"


def _cpuinfo(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    named = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in named if key.strip() == name), "")


def _number(file: str) -> int | None:
    try:
        return int((_CGROUP / file).read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None
