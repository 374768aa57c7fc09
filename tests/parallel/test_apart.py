"""A library that ends its process, hangs or fills the memory ends no more than one call."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleet_tools.errors import ConfigError, FleetToolsError, NativeLibraryError
from fleet_tools.parallel import apart
from fleet_tools.parallel.apart import call_apart


def called(function: Callable, *arguments: object) -> Any:
    return call_apart("A library", "Do something else.", function, *arguments)


@given(arrays(float, (3, 2), elements=st.floats()))
def test_a_result_is_what_the_function_returns_here(values):
    np.testing.assert_array_equal(called(np.sort, values), np.sort(values))


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [
        (os.kill, 11, "ended with SIGSEGV"),
        (os.kill, 9, "ended with SIGKILL"),
        (os._exit, 0, "ended with exit code 0"),
        (time.sleep, 100, "did not return within 0.3 s"),
        (bytearray, 10**13, "failed (MemoryError"),
        (float, "no number", "failed (ValueError: could not convert"),
    ],
)
def test_whatever_ends_a_call_ends_no_other(function, argument, reason, monkeypatch):
    pid = called(os.getpid)
    assert pid != os.getpid()
    monkeypatch.setattr(apart, "LIMIT_S", 0.3)
    arguments = (pid, argument) if function is os.kill else (argument,)
    with pytest.raises(NativeLibraryError, match=r"^A library .*Do something else\.$") as error:
        called(function, *arguments)
    assert reason in str(error.value)
    monkeypatch.undo()
    now = called(os.getpid)
    assert (now == pid) == ("failed" in reason)
    assert now == pid or not psutil.pid_exists(pid)


def refuse() -> None:
    os.write(2, b"a remark of no interest")
    raise ConfigError("It is refused.")


def abort() -> None:
    os.write(2, b"terminate called after throwing 'std::logic_error'\n")
    os.abort()


def test_errors_of_ours_come_back_and_last_words_are_repeated():
    with pytest.raises(ConfigError, match=r"^It is refused\.$"):
        called(refuse)
    with pytest.raises(FleetToolsError, match=r"SIGABRT: terminate .* 'std::logic_error'\. Do"):
        called(abort)
