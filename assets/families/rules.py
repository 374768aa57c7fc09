"""What keeps impossible measures from becoming models."""

from collections.abc import Mapping


def require(what: str, params: object, rules: Mapping[str, bool]) -> None:
    """Raises ValueError with the names of the rules that do not hold, and what was given."""
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise ValueError(f"not a {what}; wanted: {'; '.join(broken)}; given: {params}")
