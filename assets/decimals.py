"""Numbers as the text of model files."""

from collections.abc import Iterable


def decimal(value: float, digits: int) -> str:
    """Returns the shortest decimal of a rounded number, without an exponent.

    Zero is never negative, so that equal values have equal texts.

    Args:
        value: The number.
        digits: Digits after the decimal point, before trailing zeros are dropped.
    """
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"
    return "0" if text in ("-0", "") else text


def decimals(values: Iterable[float], digits: int = 9, separator: str = " ") -> str:
    """Returns the decimals of several numbers, with a separator between them."""
    return separator.join(decimal(value, digits) for value in values)
