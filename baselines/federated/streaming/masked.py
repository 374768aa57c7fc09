"""A sum of changes under masks: three exchanges, of public keys, masked changes and seeds."""

import secrets
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.privacy.masks import (
    Reveal,
    modulus_bits,
    neighbours,
    smallest_part,
    unmask,
)
from fleet_tools.baselines.federated.privacy.quantization import dequantize
from fleet_tools.baselines.federated.streaming.exchange import Messages, Summaries, exchange
from fleet_tools.baselines.federated.streaming.mask_messages import (
    decode_key,
    decode_reveal,
    encode_key_request,
    encode_reveal_request,
)
from fleet_tools.baselines.federated.streaming.messages import decode_masked
from fleet_tools.baselines.federated.transport import Transport
from fleet_tools.baselines.training.state import TrainingError

_FEWEST = 3
"""Smallest number of robots of which a sum is shown: of two, each would know the other's change."""

MaskedRequest = Callable[[int, int, Mapping[int, bytes]], bytes]
"""request(modulus_bits, nonce, public_keys): a robot's change request."""


def masked_mean(
    plan: FleetPlan,
    transport: Transport,
    number: int,
    robots: Sequence[int],
    request: MaskedRequest,
    size: int,
    summaries: Summaries,
) -> tuple[np.ndarray, int]:
    """Returns the mean of changes of which the server sees only the sum.

    If a robot answers, and then does not say what removes its masks, its answer cannot leave the
    sum any more, and the others are asked again, under new masks.

    Args:
        plan: The fleet.
        transport: Transport to its robots.
        number: Number of the round.
        robots: Robots that are asked.
        request: Encodes a change request.
        size: Number of entries of a change.
        summaries: To which exchanges are added.

    Returns:
        Shape (n,), float64, and the number of robots.

    Raises:
        TrainingError: Too few robots answer, or what they share would show the sum of fewer than
            three.
    """
    closing, config = plan.config.closing, plan.config.streaming
    assert config is not None and config.bits is not None
    limit = closing.deadline
    keys: dict[int, bytes] = {}

    def take_key(robot: int, answer: bytes) -> tuple[None, None]:
        keys[robot] = decode_key(answer)
        return None, None

    messages = Messages(robots, lambda robot: encode_key_request())
    present = exchange(transport, messages, take_key, summaries, wanted=len(robots), deadline=limit)
    closing.require_quorum(number, len(present), plan.wanted)

    nonce, bits = secrets.randbits(62), modulus_bits(config.bits, len(present))
    graph = neighbours(present, config.neighbours, secrets.randbits(62))
    near = {robot: {other: keys[other] for other in graph[robot]} for robot in present}
    total = np.zeros(size, np.uint64)

    def take_change(robot: int, answer: bytes) -> tuple[int, None]:
        change = decode_masked(answer, number, size, bits)
        np.add(total, change.vector, out=total)  # modulo 2**64, of which the modulus is a factor
        return change.steps, None

    messages = Messages(present, lambda robot: request(bits, nonce, near[robot]))
    wanted = min(plan.wanted, len(present))
    answered = exchange(transport, messages, take_change, summaries, wanted=wanted, deadline=limit)
    closing.require_quorum(number, len(answered), plan.wanted)
    if smallest_part(graph, answered) < _FEWEST:
        raise TrainingError(
            f"In round {number}, {len(answered)} robots answered, and the masks that they share "
            f"would show the sum of fewer than {_FEWEST} of them. Give more `neighbours` of "
            "`streaming`, more robots or a longer `deadline` of `closing`."
        )

    gone = {robot: set(graph[robot]) - set(answered) for robot in answered}
    reveals: list[Reveal] = []

    def take_reveal(robot: int, answer: bytes) -> tuple[None, None]:
        reveals.append(decode_reveal(answer, robot, gone[robot]))
        return None, None

    messages = Messages(
        answered, lambda robot: encode_reveal_request(nonce, near[robot], gone[robot])
    )
    revealed = exchange(
        transport, messages, take_reveal, summaries, wanted=len(answered), deadline=limit
    )
    if revealed != answered:
        return masked_mean(plan, transport, number, revealed, request, size, summaries)
    mean = dequantize(unmask(total, bits, reveals), config.largest, config.bits)
    return mean.astype(np.float64) / len(answered), len(answered)
