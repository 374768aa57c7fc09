"""Ctrl-C that is recorded, and raised only the second time."""

import os
import signal

import pytest

from fleet_tools.parallel.interrupts import deferred_interrupt, immediate_interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_interrupt_is_recorded_and_the_second_is_raised(number):
    before = signal.getsignal(number)
    with deferred_interrupt(*{number} - {signal.SIGINT}) as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), number)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(number) is before


def test_former_handler_returns_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(OSError, match="full"), deferred_interrupt():
        raise OSError("full")
    assert signal.getsignal(signal.SIGINT) is before


def test_what_may_be_interrupted_is_interrupted_by_the_first():
    with deferred_interrupt() as interrupted:
        deferred = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), immediate_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
        assert not interrupted() and signal.getsignal(signal.SIGINT) is deferred
