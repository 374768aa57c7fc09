"""Files mapped into memory as arrays of bytes.

`mmap.mmap` keeps every mapped file open, until Python 3.13 brings `trackfd=False`; datasets have
more files than a process may commonly have open (1,024). Here, a file is closed once it is mapped.
"""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    *[ctypes.c_int] * 3,
    ctypes.c_long,  # off_t, where Drake runs
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


def map_file(path: Path) -> np.ndarray:
    """Maps a file.

    Returns:
        (size,) uint8, read-only; the mapping lasts as long as an array that views it.

    Raises:
        OSError: There is no such file, it is empty, or too many are mapped.
    """
    return np.asarray(_Mapping(path))


class _Mapping:
    """Mapped memory, released with the last array that views it."""

    def __init__(self, path: Path) -> None:
        self._size = 0
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        self._address, self._size = address, size
        read_only = True
        self.__array_interface__ = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, read_only),
        }

    def __del__(self, unmap=_libc.munmap) -> None:  # this module may already be gone
        if self._size:
            unmap(self._address, self._size)
