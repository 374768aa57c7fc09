"""Sums of answers of which no single one is seen: secure aggregation by masks.

As in Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning"
(2017): a robot adds to its integers a mask of its own, and one mask for each of its neighbours,
with opposite signs at either end, so that these cancel in the sum. Neighbours are those of a
sparse random graph, as in Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead" (2020). A mask is uniform modulo a power of two, and so is a masked answer. What is added
up modulo a power of two that no sum exceeds is the sum of the integers, exactly.

    round begins    the server sends each robot its neighbours' public keys
    answer          `mask`; the server adds answers up
    round closes    the server says which robots are lost: no answer of theirs is in the sum
    `reveal`        a robot that answered sends the seed of its own mask, and the seeds that it
                    shares with lost neighbours, whose masks nothing cancels
    `unmask`        the server subtracts these masks from the sum

Keys are X25519's (RFC 7748), seeds follow by HKDF with SHA-256 (RFC 5869), separately for each
round, and masks are key streams of ChaCha20 (RFC 8439), all by the library `cryptography`. Only
seeds of one round are ever revealed, never a key.

This protects from a server that follows the protocol and is curious, and from who reads its memory
or its records afterwards. It does not protect from a server that lies, and differs from the
protocol of Bonawitz et al. in these points:

- Keys come through the server, without signatures. A server that invents robots, or exchanges
  keys, knows all masks.
- A robot's two kinds of masks are each enough to hide its answer. A server that has the seed of a
  robot's own mask must not have all its pair seeds, too. Its neighbours reveal their pair seeds
  with it only if it is called lost, and it reveals its own seed only if it answered in time. A
  server that tells a robot that it is in the sum, and its neighbours that it is lost, sees its
  answer. The same holds for a robot whose answer is thrown away after it revealed its seed.
- Seeds of a robot's own masks are not shared among its neighbours (no secret sharing). If a robot
  answers and then reveals nothing, the round has no sum: a server asks again, or gives the round
  up. It must not call such a robot lost, since its seed may only be late.
- A robot that masks different integers in the same round with the same keys reveals their
  difference. A round is asked once, or again with the same message; another run of a fleet has
  other keys.
- The server sees the sum over each connected part of the graph of those who answered
  (`smallest_part`), and robots that collude with it see the sum of the others.
- Answers of a wrong size or range are not noticed: a masked answer cannot be checked.
"""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fleet_tools.baselines.federated.privacy.modular import MOST_BITS, centre, check_bits, reduce
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError
from fleet_tools.utils.libraries import require

KEY_BYTES: Final = 32
"""Bytes of a secret, of a public key and of a seed."""

_PURPOSE = "mask a fleet's answers"


@dataclass(frozen=True)
class Reveal:
    """What a robot that answered reveals when its round is closed.

    Attributes:
        robot: Its number.
        own: Seed of its own mask of the round, `KEY_BYTES` long.
        pairs: The round's seed of its mask with each lost neighbour, by the neighbour's number.
    """

    robot: int
    own: bytes
    pairs: Mapping[int, bytes]


def public_key(secret: bytes) -> bytes:
    """Returns the public key of a secret, which its robot draws at random for each fleet.

    Raises:
        MessageError: The secret does not have `KEY_BYTES` bytes.
        MissingLibraryError: `cryptography` is not installed.
    """
    return _private(secret).public_key().public_bytes_raw()


def modulus_bits(bits: int, robots: int) -> int:
    """Returns the bits of a modulus that no sum of integers exceeds: bits + ceil(log2(robots)).

    Args:
        bits: Bits of a robot's signed integer.
        robots: The largest number of integers in a sum.

    Raises:
        ConfigError: There is no robot, or they need more than 64 bits.
    """
    if robots < 1:
        raise ConfigError(f"A sum of the answers of {robots} robots; expected: at least 1.")
    check_bits(needed := bits + (robots - 1).bit_length())
    return needed


def neighbours(participants: Sequence[int], degree: int, seed: int) -> dict[int, tuple[int, ...]]:
    """Returns the neighbours of each participant in a random graph, connected and undirected.

    The participants stand in a circle in random order, and each is a neighbour of the `degree` / 2
    next ones to either side (the random Harary graph of Bell et al. 2020).

    Args:
        participants: Different numbers, in any order.
        degree: Neighbours of each, at least 1; odd numbers are raised to even ones. With fewer
            other participants than that, all are neighbours.
        seed: Seed of the order, at least 0.

    Raises:
        ConfigError: The degree is not positive, or a participant is named twice.
    """
    ordered = sorted(participants)
    count = len(ordered)
    if len(set(ordered)) != count:
        raise ConfigError(f"Of {count} participants, only {len(set(ordered))} are different.")
    if degree < 1:
        raise ConfigError(f"A robot has {degree} neighbours; expected: at least 1.")
    circle = [ordered[index] for index in np.random.default_rng(seed).permutation(count)]
    reach = min((degree + 1) // 2, count // 2)
    steps = {step * sign for step in range(1, reach + 1) for sign in (1, -1)}
    return {
        robot: tuple(sorted({circle[(place + step) % count] for step in steps}))
        for place, robot in sorted(enumerate(circle), key=lambda each: each[1])
    }


def smallest_part(graph: Mapping[int, Collection[int]], answered: Collection[int]) -> int:
    """Returns the size of the smallest connected part of those who answered.

    The server learns a sum over so many robots, and none over fewer.

    Args:
        graph: The `neighbours` of each participant.
        answered: Participants whose answers are in the sum.

    Returns:
        Number of robots, 0 if nobody answered.
    """
    left, sizes = set(answered), [] if answered else [0]
    while left:
        part, new = set(), {left.pop()}
        while new:
            part |= new
            new = {other for robot in new for other in graph[robot] if other in left}
            left -= new
        sizes.append(len(part))
    return min(sizes)


def mask(
    integers: np.ndarray,
    modulus_bits: int,
    *,
    robot: int,
    secret: bytes,
    public_keys: Mapping[int, bytes],
    round_number: int,
) -> np.ndarray:
    """Returns integers under a robot's masks.

    Args:
        integers: int64 of any shape.
        modulus_bits: Bits of the modulus, 1 to 64.
        robot: The robot's number.
        secret: The robot's secret, `KEY_BYTES` long.
        public_keys: Public keys of all its neighbours in this round, by their numbers.
        round_number: Number of the round, at least 0.

    Returns:
        uint64 of the same shape, below 2**modulus_bits. Its sum with those of all other
        participants is the sum of the integers, once their own masks are removed.

    Raises:
        ConfigError: The bits are out of range.
        MessageError: A robot without neighbours, or among its own, whose answer nothing hides; or
            a key of a wrong length, or one that gives no secret.
        MissingLibraryError: `cryptography` is not installed.
    """
    check_bits(modulus_bits)
    if not public_keys:
        raise MessageError(f"Robot {robot} has no neighbour, so that nothing hides its answer.")
    pairs = _pair_seeds(robot, secret, public_keys, round_number)
    total = _words(_own_seed(robot, secret, round_number), np.size(integers), modulus_bits)
    for neighbour, seed in pairs.items():
        _add(total, seed, modulus_bits, minus=robot > neighbour)
    masks = total.astype(np.uint64).reshape(np.shape(integers))
    return reduce(reduce(integers, modulus_bits) + masks, modulus_bits)


def reveal(
    lost: Collection[int],
    *,
    robot: int,
    secret: bytes,
    public_keys: Mapping[int, bytes],
    round_number: int,
) -> Reveal:
    """Returns what a robot that answered reveals when the round is closed.

    A robot asks for the reason of a second, different request in the same round: those called lost
    must not have revealed anything, see the module.

    Args:
        lost: Those of its neighbours whose answers are not in the sum.
        robot: The robot's number.
        secret: The robot's secret.
        public_keys: Public keys of all its neighbours in this round, as for its answer.
        round_number: Number of the round.

    Raises:
        MessageError: A lost robot is no neighbour, or all neighbours are lost, so that nothing
            would hide the robot's answer; or a key is bad, as for `mask`.
        MissingLibraryError: `cryptography` is not installed.
    """
    if strangers := sorted(set(lost) - set(public_keys)):
        raise MessageError(f"Robot {robot} is told that {strangers} are lost: no neighbours.")
    if set(lost) == set(public_keys):
        raise MessageError(
            f"Robot {robot} is told that all its {len(public_keys)} neighbours are lost. With all "
            "seeds revealed, nothing would hide its answer, so the round must be given up."
        )
    keys = {neighbour: public_keys[neighbour] for neighbour in sorted(lost)}
    pairs = _pair_seeds(robot, secret, keys, round_number)
    return Reveal(robot, _own_seed(robot, secret, round_number), pairs)


def unmask(total: np.ndarray, modulus_bits: int, reveals: Iterable[Reveal]) -> np.ndarray:
    """Returns the sum of integers of a sum of masked answers.

    Args:
        total: uint64 of any shape, the sum of the masked answers; it may have wrapped around.
        modulus_bits: Bits of the modulus, 1 to 64.
        reveals: What each robot revealed whose answer is in the sum. If one is missing, the result
            is uniform noise.

    Returns:
        int64 of the same shape, from -2**(modulus_bits - 1) to 2**(modulus_bits - 1) - 1.

    Raises:
        ConfigError: The bits are out of range.
        MessageError: A robot reveals twice, or a seed with itself, or one of a wrong length.
        MissingLibraryError: `cryptography` is not installed.
    """
    check_bits(modulus_bits)
    masks = np.zeros(np.size(total), _word(modulus_bits))
    seen: set[int] = set()
    for each in reveals:
        if each.robot in seen or each.robot in each.pairs:
            raise MessageError(f"Robot {each.robot} reveals twice, or a seed with itself.")
        seen.add(each.robot)
        _add(masks, each.own, modulus_bits)
        for lost, seed in each.pairs.items():
            _add(masks, seed, modulus_bits, minus=each.robot > lost)
    return centre(
        np.asarray(total) - masks.astype(np.uint64).reshape(np.shape(total)), modulus_bits
    )


def _pair_seeds(
    robot: int, secret: bytes, public_keys: Mapping[int, bytes], round_number: int
) -> dict[int, bytes]:
    """Returns the round's seeds that a robot shares with others, by their numbers."""
    if robot in public_keys:
        raise MessageError(f"Robot {robot} is named as its own neighbour.")
    private = _private(secret)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    own = private.public_key().public_bytes_raw()
    seeds = {}
    for other, key in public_keys.items():
        try:
            shared = private.exchange(X25519PublicKey.from_public_bytes(key))
        except (TypeError, ValueError) as error:
            raise MessageError(
                f"The public key of robot {other}, neighbour of {robot}, cannot be used: {error} "
                f"A key has {KEY_BYTES} bytes, and is made by `public_key`."
            ) from None
        numbers, keys = (robot, other), (own, bytes(key))
        if robot > other:
            numbers, keys = numbers[::-1], keys[::-1]
        seeds[other] = _derived(shared, b"pair", (*numbers, round_number), b"".join(keys))
    return seeds


def _own_seed(robot: int, secret: bytes, round_number: int) -> bytes:
    return _derived(secret, b"self", (robot, round_number))


def _private(secret: bytes):
    require("cryptography", _PURPOSE)
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    if len(secret) != KEY_BYTES:
        raise MessageError(f"A secret has {len(secret)} bytes; expected: {KEY_BYTES}.")
    return X25519PrivateKey.from_private_bytes(secret)


def _derived(secret: bytes, kind: bytes, numbers: tuple[int, ...], keys: bytes = b"") -> bytes:
    """Returns a seed for one purpose, by HKDF."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        purpose = b"fleet-tools mask " + kind + struct.pack(f">{len(numbers)}Q", *numbers) + keys
    except struct.error:
        raise MessageError(
            f"Numbers of robots and rounds are {numbers}; expected: from 0 to 2**64 - 1."
        ) from None
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(secret)


def _word(modulus_bits: int) -> np.dtype:
    """Returns the smallest unsigned integers, low byte first, that hold residues."""
    size = next(size for size in (1, 2, 4, 8) if modulus_bits <= 8 * size)
    return np.dtype(f"<u{size}")


def _words(seed: bytes, count: int, modulus_bits: int) -> np.ndarray:
    """Returns the mask of a seed: words (count,), uniform modulo 2**modulus_bits."""
    require("cryptography", _PURPOSE)
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    if len(seed) != KEY_BYTES:
        raise MessageError(f"A seed has {len(seed)} bytes; expected: {KEY_BYTES}.")
    word = _word(modulus_bits)
    # A seed is used once, so that the nonce may be constant.
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return np.frombuffer(bytearray(stream.update(bytes(count * word.itemsize))), word)


def _add(total: np.ndarray, seed: bytes, modulus_bits: int, minus: bool = False) -> None:
    """Adds the mask of a seed to words, or subtracts it; what they exceed is reduced later."""
    words = _words(seed, total.size, modulus_bits)
    if minus:
        total -= words
    else:
        total += words
