"""Seeds and words of masks, by implementations of the published algorithms in plain Python."""

import hashlib
import hmac
import struct

import numpy as np
import pytest

pytest.importorskip("torch", reason="merging needs it")
pytest.importorskip("cryptography")

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet_tools.baselines.federated.privacy.masks import public_key
from fleet_tools.baselines.federated.privacy.seeds import mask_words, own_seed, pair_seeds
from fleet_tools.baselines.merging.errors import MessageError

BYTES = st.binary(min_size=32, max_size=32)
NUMBERS = st.integers(0, 2**64 - 1)
PRIME = 2**255 - 19
LOW_ORDER = (
    0,
    1,
    PRIME - 1,
    PRIME,
    PRIME + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
"""Points of X25519 that give the shared secret 0 with every key."""


def x25519(scalar: bytes, point: int = 9) -> bytes:
    """Returns the product of a scalar and a point, by the ladder of RFC 7748, Section 5."""
    k = int.from_bytes(scalar, "little") & ~7 & (2**254 - 1) | 2**254
    x2, z2, x3, z3 = 1, 0, point, 1
    for bit in reversed(range(255)):
        swap = k >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        x3, z3 = (d * a + c * b) ** 2 % PRIME, point * (d * a - c * b) ** 2 % PRIME
        e = a * a - b * b
        x2, z2 = a * a * b * b % PRIME, e * (a * a + 121665 * e) % PRIME
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def hkdf(secret: bytes, info: bytes) -> bytes:
    """Returns 32 bytes of HKDF with SHA-256 without salt, of RFC 5869."""
    key = hmac.digest(bytes(32), secret, hashlib.sha256)
    return hmac.digest(key, info + b"\x01", hashlib.sha256)


def chacha20(key: bytes, length: int) -> bytes:
    """Returns a key stream of ChaCha20 with counter and nonce 0, of RFC 8439, Section 2.3."""
    stream = b""
    for counter in range(-(-length // 64)):
        first = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key)]
        state = np.array([*first, counter, 0, 0, 0], np.uint32)
        initial = state.copy()
        for turn in range(20):
            for i in range(4):
                quarter = [4 * row + (i + (turn % 2) * row) % 4 for row in range(4)]
                a, b, c, d = state[quarter]
                for plus, by, rotation in ((0, 1, 16), (2, 3, 12), (0, 1, 8), (2, 3, 7)):
                    words = [a, b, c, d]
                    words[plus] = words[plus] + words[by]
                    target = {0: 3, 2: 1}[plus]
                    mixed = words[target] ^ words[plus]
                    words[target] = mixed << np.uint32(rotation) | mixed >> np.uint32(32 - rotation)
                    a, b, c, d = words
                state[quarter] = a, b, c, d
        stream += (state + initial).astype("<u4").tobytes()
    return stream[:length]


@settings(max_examples=5)
@given(secret=BYTES)
def test_a_public_key_is_the_secret_times_the_base_point(secret):
    assert public_key(secret) == x25519(secret)


@settings(max_examples=5)
@given(secrets=st.tuples(BYTES, BYTES), low=NUMBERS, high=NUMBERS, round_number=NUMBERS)
def test_both_ends_share_the_seed_of_rfc_7748_and_5869(secrets, low, high, round_number):
    low, high = sorted((low, high))
    if low == high:
        return
    keys = [public_key(secret) for secret in secrets]
    shared = x25519(secrets[0], int.from_bytes(keys[1], "little"))
    info = b"fleet-tools mask pair" + struct.pack(">3Q", low, high, round_number) + b"".join(keys)
    expected = hkdf(shared, info)
    assert pair_seeds(low, secrets[0], {high: keys[1]}, round_number) == {high: expected}
    assert pair_seeds(high, secrets[1], {low: keys[0]}, round_number) == {low: expected}


@given(secret=BYTES, robot=NUMBERS, round_number=NUMBERS)
def test_a_robots_own_seed_is_that_of_rfc_5869(secret, robot, round_number):
    info = b"fleet-tools mask own" + struct.pack(">2Q", robot, round_number)
    assert own_seed(robot, secret, round_number) == hkdf(secret, info)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # additions modulo 2**32
@settings(max_examples=5)
@given(seed=BYTES, bits=st.integers(1, 64), count=st.integers(0, 30))
def test_words_are_the_key_stream_of_rfc_8439(seed, bits, count):
    words = mask_words(seed, count, bits)
    size = words.dtype.itemsize
    assert words.shape == (count,) and size == min(s for s in (1, 2, 4, 8) if bits <= 8 * s)
    assert words.tobytes() == chacha20(seed, count * size)


@given(secret=BYTES, robot=st.integers(0, 5), rounds=st.tuples(NUMBERS, NUMBERS))
def test_seeds_of_different_rounds_robots_and_pairs_differ(secret, robot, rounds):
    keys = {other: public_key(bytes([other + 1]) * 32) for other in range(6) if other != robot}
    seeds = []
    for number in set(rounds):
        seeds += [own_seed(robot, secret, number), own_seed(robot + 1, secret, number)]
        seeds += pair_seeds(robot, secret, keys, number).values()
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order_is_refused(point):
    assert x25519(bytes(range(32)), point) == bytes(32)
    with pytest.raises(MessageError, match="robot 4 gives no secret"):
        pair_seeds(3, bytes(range(32)), {4: point.to_bytes(32, "little")}, 0)


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), "0" * 32, None, 32])
def test_secrets_keys_and_seeds_of_other_lengths_or_types_are_refused(bad):
    secret, key = bytes(range(32)), public_key(bytes(range(1, 33)))
    for call in (
        lambda: public_key(bad),
        lambda: own_seed(1, bad, 0),
        lambda: pair_seeds(1, bad, {2: key}, 0),
        lambda: pair_seeds(1, secret, {2: bad}, 0),
        lambda: mask_words(bad, 3, 8),
    ):
        with pytest.raises(MessageError, match="expected: 32 bytes"):
            call()


def test_a_robot_is_not_its_own_neighbour():
    secret = bytes(range(32))
    with pytest.raises(MessageError, match="own neighbour"):
        pair_seeds(3, secret, {3: public_key(secret)}, 0)


@pytest.mark.parametrize("number", [-1, 2**64, 1.5])
def test_numbers_that_are_none_are_refused(number):
    secret, key = bytes(range(32)), public_key(bytes(range(1, 33)))
    for call in (
        lambda: own_seed(number, secret, 0),
        lambda: own_seed(1, secret, number),
        lambda: pair_seeds(1, secret, {2: key}, number),
        lambda: pair_seeds(number, secret, {2: key}, 0),
    ):
        with pytest.raises(MessageError, match=r"integers from 0 to 2\*\*64"):
            call()
