"""Sums of answers of which no single one is seen: secure aggregation by masks.

As in Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning"
(2017): a robot adds to its integers a mask of its own, and a mask for each of its neighbours, of
opposite sign at the other end, so that these cancel in the sum. Neighbours are those of a sparse
random graph, as in Bell et al., "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead"
(2020). Masks are uniform modulo a power of two, and so is a masked answer. With a modulus that no
sum exceeds, the sum without its masks is that of the integers, exactly.

    round begins    the server sends each robot its neighbours' public keys
    answer          `mask`; the server adds the answers up
    round closes    answers that have not come are left out of the sum: their robots are lost
    `reveal`        a robot whose answer is in the sum sends the seed of its own mask, and the
                    seeds that it shares with lost neighbours, whose masks nothing cancels
    `unmask`        the server removes these masks from the sum

Only seeds of one round are revealed, never a key. An answer that comes too late is hidden by the
robot's own mask, although its neighbours have revealed the others.

This protects from a server that follows the protocol but is curious, and from whoever reads its
memory and records. It does not protect from a server that lies:

- Public keys come through the server, unsigned. A server that sends keys of its own in place of a
  robot's neighbours knows all their masks.
- To see a robot's answer, a server needs the seed of its own mask and those of all its pairs. One
  that tells the robot that its answer is in the sum, and all its neighbours that it is lost, is
  given them. Robots that compare what they were told, and sign it, would notice (Bonawitz et al.,
  Section 7); ours do not.
- A robot that masks two answers with the same secret and round number reveals their difference, and
  a round that is closed twice, with other robots lost, reveals answers. So every attempt at a
  round, also after the server was resumed, has a number of its own, which a robot answers once, and
  each run of a fleet has new secrets.

Nor does it protect from the following:

- The server learns the sum over each connected part of the graph of those who answered, see
  `smallest_part`. Robots that share what they know with it learn the sum of the others.
- Seeds of own masks are not shared among neighbours (no secret sharing). If a robot answers and
  reveals nothing, the sum cannot be had: the server asks it again, or gives the round up. It must
  not call that robot lost, because what it revealed may only be late.
- A masked answer cannot be checked, so that a robot can spoil the sum.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.baselines.federated.privacy.modular import centre, check_bits, reduce
from fleet_tools.baselines.federated.privacy.seeds import (
    mask_words,
    own_seed,
    pair_seeds,
    private_key,
)
from fleet_tools.baselines.merging.errors import MessageError
from fleet_tools.errors import ConfigError


@dataclass(frozen=True)
class Reveal:
    """What a robot whose answer is in the sum reveals when its round is closed.

    Attributes:
        robot: Its number.
        own: Seed of its own mask of the round, 32 bytes.
        pairs: The round's seeds that it shares with lost neighbours, by their numbers.
    """

    robot: int
    own: bytes
    pairs: Mapping[int, bytes]


def public_key(secret: bytes) -> bytes:
    """Returns the public key, 32 bytes, of a secret of 32 random bytes.

    A robot draws its secret anew for each run of a fleet, and keeps it to itself.

    Raises:
        MessageError: The secret has a wrong length.
        MissingLibraryError: `cryptography` is not installed.
    """
    return private_key(secret).public_key().public_bytes_raw()


def modulus_bits(bits: int, robots: int) -> int:
    """Returns the bits of a modulus that no sum exceeds: bits + ceil(log2(robots)).

    Args:
        bits: Bits of each signed integer.
        robots: Largest number of integers in a sum.

    Raises:
        ConfigError: There is no robot, or the sum needs more than 64 bits.
    """
    if robots < 1:
        raise ConfigError(f"A sum over {robots} robots; expected: at least 1.")
    check_bits(needed := bits + (robots - 1).bit_length())
    return needed


def neighbours(participants: Sequence[int], degree: int, seed: int) -> dict[int, tuple[int, ...]]:
    """Returns the neighbours of each participant in a random graph, undirected and connected.

    The participants stand in a circle in random order, and the `degree` / 2 next ones to either
    side are a robot's neighbours: the random Harary graph of Bell et al. (2020).

    Args:
        participants: Different numbers, in any order.
        degree: Neighbours of each, at least 1; an odd number is raised to the next even one.
            Where there are not so many others, all others are neighbours.
        seed: Seed of the order, at least 0.

    Returns:
        Neighbours in ascending order, by participant.

    Raises:
        ConfigError: The degree is not positive, or a participant is named twice.
    """
    if degree < 1:
        raise ConfigError(f"A robot has {degree} neighbours; expected: at least 1.")
    ordered = sorted(participants)
    count = len(ordered)
    if len(set(ordered)) != count:
        raise ConfigError(f"{count} participants have {len(set(ordered))} numbers.")
    circle = [ordered[index] for index in np.random.default_rng(seed).permutation(count)]
    reach = min((degree + 1) // 2, count // 2)
    steps = [sign * step for step in range(1, reach + 1) for sign in (1, -1)]
    found = {
        robot: tuple(sorted({circle[(place + step) % count] for step in steps}))
        for place, robot in enumerate(circle)
    }
    return dict(sorted(found.items()))


def smallest_part(graph: Mapping[int, Collection[int]], answered: Collection[int]) -> int:
    """Returns the size of the smallest connected part of those who answered.

    The server learns the sum over that part, and none over fewer robots.

    Args:
        graph: `neighbours` of each participant.
        answered: Participants whose answers are in the sum.

    Returns:
        Number of robots, 0 if nobody answered.
    """
    rest, sizes = set(answered), []
    while rest:
        before, reached = len(rest), {rest.pop()}
        while reached:
            reached = {other for robot in reached for other in graph[robot] if other in rest}
            rest -= reached
        sizes.append(before - len(rest))
    return min(sizes, default=0)


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
        robot: The robot's number, at least 0.
        secret: The robot's secret, 32 bytes.
        public_keys: Public keys of all its neighbours in this round, by their numbers.
        round_number: Number of this attempt at a round, at least 0.

    Returns:
        uint64 of the same shape, below 2**modulus_bits.

    Raises:
        ConfigError: The bits are out of range.
        MessageError: The robot has no neighbours, so that nothing would hide its answer once its
            own mask is removed, or is one of them; a key cannot be used; or a number is negative.
        MissingLibraryError: `cryptography` is not installed.
    """
    check_bits(modulus_bits)
    if not public_keys:
        raise MessageError(f"Robot {robot} has no neighbours, so that nothing hides its answer.")
    pairs = pair_seeds(robot, secret, public_keys, round_number)
    seeds = [(own_seed(robot, secret, round_number), 1)]
    seeds += [(seed, _sign(robot, other)) for other, seed in pairs.items()]
    masks = _sum(seeds, np.shape(integers), modulus_bits)
    return reduce(reduce(integers, modulus_bits) + masks, modulus_bits)


def reveal(
    lost: Collection[int],
    *,
    robot: int,
    secret: bytes,
    public_keys: Mapping[int, bytes],
    round_number: int,
) -> Reveal:
    """Returns what a robot whose answer is in the sum reveals when the round is closed.

    It answers one such request in a round. A second one that calls others lost would have it
    reveal the seeds of robots that may have revealed those of their own masks.

    Args:
        lost: Its neighbours whose answers are not in the sum.
        robot: The robot's number.
        secret: The robot's secret.
        public_keys: Public keys of all its neighbours in this round, as for its answer.
        round_number: Number of this attempt at a round.

    Raises:
        MessageError: A lost robot is no neighbour; all neighbours are lost, so that nothing would
            hide the robot's answer; a key cannot be used; or a number is negative.
        MissingLibraryError: `cryptography` is not installed.
    """
    if strangers := sorted(set(lost) - set(public_keys)):
        raise MessageError(f"Of robot {robot}, {strangers} are called lost and no neighbours.")
    if set(lost) == set(public_keys):
        raise MessageError(
            f"All {len(public_keys)} neighbours of robot {robot} are called lost. Nothing would "
            "hide its answer, so the round must be given up."
        )
    keys = {other: public_keys[other] for other in sorted(lost)}
    pairs = pair_seeds(robot, secret, keys, round_number)
    return Reveal(robot, own_seed(robot, secret, round_number), pairs)


def unmask(total: np.ndarray, modulus_bits: int, reveals: Iterable[Reveal]) -> np.ndarray:
    """Returns the sum of integers, from the sum of masked answers.

    Args:
        total: uint64 of any shape, the sum of the masked answers; it may have wrapped around.
        modulus_bits: Bits of the modulus, 1 to 64.
        reveals: What the robots revealed whose answers are in the sum, in any order. Without that
            of a single one, the result is noise.

    Returns:
        int64 of the same shape, from -2**(modulus_bits - 1) to 2**(modulus_bits - 1) - 1.

    Raises:
        ConfigError: The bits are out of range.
        MessageError: A robot reveals twice, or reveals although it is called lost; or a seed has a
            wrong length.
        MissingLibraryError: `cryptography` is not installed.
    """
    check_bits(modulus_bits)
    reveals = list(reveals)
    robots = {each.robot for each in reveals}
    lost = {other for each in reveals for other in each.pairs}
    if len(robots) < len(reveals) or robots & lost:
        raise MessageError(
            f"{len(reveals)} answers reveal seeds of {len(robots)} robots, of which "
            f"{sorted(robots & lost)} are called lost; expected: one of each robot in the sum."
        )
    seeds = [(each.own, 1) for each in reveals]
    seeds += [(s, _sign(each.robot, other)) for each in reveals for other, s in each.pairs.items()]
    masks = _sum(seeds, np.shape(total), modulus_bits)
    return centre(np.asarray(total, np.uint64) - masks, modulus_bits)


def _sign(robot: int, other: int) -> int:
    """Returns the sign with which a robot adds the mask that it shares with another."""
    return 1 if robot < other else -1


def _sum(
    seeds: Iterable[tuple[bytes, int]], shape: tuple[int, ...], modulus_bits: int
) -> np.ndarray:
    """Returns the sum of the masks of seeds with their signs, modulo 2**modulus_bits."""
    total = np.zeros(shape, np.uint64)
    for seed, sign in seeds:
        words = mask_words(seed, total.size, modulus_bits).reshape(shape)
        total = total + words if sign > 0 else total - words
    return reduce(total, modulus_bits)
