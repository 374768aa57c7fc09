"""Resources of this machine, and of a container's part of it."""

import os

from fleet_tools.utils.machine import available_cores, available_memory, free_disk, total_memory


def test_available_resources_are_part_of_the_machine(tmp_path):
    assert 0 < available_cores() <= len(os.sched_getaffinity(0))
    assert 0 < available_memory() <= total_memory()
    assert total_memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert free_disk(tmp_path) > 0


def test_memory_limit_of_a_container_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("fleet_tools.utils.machine._CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("300\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert available_memory() == 200
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 200
