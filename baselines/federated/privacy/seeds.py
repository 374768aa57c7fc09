"""Seeds and words of masks, from a robot's secret and the public keys of others.

Keys are X25519's (RFC 7748), a seed is derived by HKDF with SHA-256 (RFC 5869) for one purpose and
one round, and the words of a mask are the key stream of ChaCha20 (RFC 8439), all by the library
`cryptography`.
"""

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES: Final = 32
"""Bytes of a secret, of a public key and of a seed."""

_PURPOSE = "mask a fleet's answers"


def private_key(secret: bytes) -> "X25519PrivateKey":
    """Returns the private key of a secret.

    Raises:
        MessageError: The secret does not have `KEY_BYTES` bytes.
        MissingLibraryError: `cryptography` is not installed.
    """
    require("cryptography", _PURPOSE)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    _check_bytes("secret", secret)
    return X25519PrivateKey.from_private_bytes(secret)


def pair_seeds(
    robot: int, secret: bytes, public_keys: Mapping[int, bytes], round_number: int
) -> dict[int, bytes]:
    """Returns the seeds of a round that a robot shares with others, the same at either end.

    Args:
        robot: The robot's number.
        secret: The robot's secret.
        public_keys: Public keys of the others, by their numbers.
        round_number: Number of the round.

    Raises:
        MessageError: The robot is among the others; a key has a wrong length, or gives no secret
            because it is a point of low order; or a number is out of range.
        MissingLibraryError: `cryptography` is not installed.
    """
    if robot in public_keys:
        raise MessageError(f"Robot {robot} is named as its own neighbour.")
    private = private_key(secret)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    own = private.public_key().public_bytes_raw()
    seeds = {}
    for other, key in public_keys.items():
        _check_bytes(f"public key of robot {other}", key)
        try:
            shared = private.exchange(X25519PublicKey.from_public_bytes(key))
        except ValueError:
            raise MessageError(
                f"The public key of robot {other} gives no secret, whatever the other key is."
            ) from None
        ends = sorted([(robot, own), (other, key)])
        numbers = (*(number for number, _ in ends), round_number)
        seeds[other] = _derived(shared, b"pair", numbers, b"".join(key for _, key in ends))
    return seeds


def own_seed(robot: int, secret: bytes, round_number: int) -> bytes:
    """Returns the seed of a robot's own mask in a round.

    Raises:
        MessageError: The secret has a wrong length, or a number is out of range.
        MissingLibraryError: `cryptography` is not installed.
    """
    _check_bytes("secret", secret)
    return _derived(secret, b"own", (robot, round_number))


def mask_words(seed: bytes, count: int, modulus_bits: int) -> np.ndarray:
    """Returns the mask of a seed, uniform modulo 2**modulus_bits.

    Args:
        seed: The seed, of one mask alone.
        count: Number of words.
        modulus_bits: Bits of the modulus, 1 to 64.

    Returns:
        Words (count,) of the smallest unsigned type that holds so many bits; those beyond are
        random, too.

    Raises:
        MessageError: The seed has a wrong length.
        MissingLibraryError: `cryptography` is not installed.
    """
    require("cryptography", _PURPOSE)
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    _check_bytes("seed", seed)
    size = next(size for size in (1, 2, 4, 8) if modulus_bits <= 8 * size)
    # The nonce may be constant, since a seed makes one mask.
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(count * size)), f"<u{size}")


def _derived(secret: bytes, kind: bytes, numbers: tuple[int, ...], keys: bytes = b"") -> bytes:
    require("cryptography", _PURPOSE)
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        purpose = b"fleet-tools mask " + kind + struct.pack(f">{len(numbers)}Q", *numbers) + keys
    except struct.error:
        raise MessageError(
            f"Numbers of robots and of the round are {numbers}; expected: integers from 0 to "
            "2**64 - 1."
        ) from None
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(secret)


def _check_bytes(what: str, given: bytes) -> None:
    if not isinstance(given, bytes) or len(given) != KEY_BYTES:
        size = f"{len(given)} bytes" if isinstance(given, bytes) else type(given).__name__
        raise MessageError(f"The {what} is {size}; expected: {KEY_BYTES} bytes.")
