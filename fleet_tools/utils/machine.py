"""What this process may use of its machine: cores, memory, disk; in a container, its share."""

import os
import platform
import shutil
from pathlib import Path

GIB = 2**30

_CGROUP = Path("/sys/fs/cgroup")


def available_cores() -> float:
    """Returns how many cores this process may use at once; a container's limit can be a part."""
    cores = len(os.sched_getaffinity(0))
    quota, period = _cgroup_cpu()
    return min(cores, quota / period) if quota > 0 else cores


def available_memory() -> int:
    """Returns how many bytes this process can still get before others must give some up."""
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    left = 1024 * int(meminfo["MemAvailable"].split()[0])
    for limit, used in [
        ("memory.max", "memory.current"),  # cgroup 2, then 1
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ]:
        most, now = _number(limit), _number(used)
        if most is not None and now is not None:
            left = min(left, most - now)
    return max(left, 0)


def total_memory() -> int:
    """Returns how many bytes of memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor() -> str:
    """Returns what the processor is called, or the empty string where nothing says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    named = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in named if key.strip() == "model name"), "")


def machine_name() -> str:
    """Returns the processor and the number of its cores, as reports of speed begin."""
    return f"{processor() or platform.machine()}, {os.cpu_count()} cores"


def free_disk(folder: Path) -> int:
    """Returns how many bytes can be written into a folder."""
    return shutil.disk_usage(folder).free


def _cgroup_cpu() -> tuple[float, float]:
    """Microseconds of processor time per period, and the period; a quota of 0 is none."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return (0.0 if quota == "max" else float(quota)), float(period)
    except (OSError, ValueError):
        pass
    quota, period = _number("cpu/cpu.cfs_quota_us"), _number("cpu/cpu.cfs_period_us")
    return float(max(quota or 0, 0)), float(period or 1)


def _number(file: str) -> int | None:
    try:
        return int((_CGROUP / file).read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
