"""Statistics of success rates."""


def wilson_interval(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Returns Wilson's score interval of a success rate (Wilson 1927); 95% by default."""
    if trials == 0:
        return 0.0, 1.0
    rate, weight = successes / trials, z**2 / trials
    center = (rate + weight / 2) / (1 + weight)
    half_width = (weight * (rate * (1 - rate) + weight / 4)) ** 0.5 / (1 + weight)
    return max(0.0, round(center - half_width, 6)), min(1.0, round(center + half_width, 6))
