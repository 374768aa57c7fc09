"""Names of methods: what they may look like, and which of them readers could mistake."""

import re
import unicodedata

from fleet_tools.policies.sources import built_in_description

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", re.ASCII)
_RULE = "at most 64 letters, digits and . _ + - of ASCII, of which the first is a letter or a digit"

_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "5": "s", **dict.fromkeys("._+-")})
_ALIKE_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


def name_problem(name: str, kind: str, folder: str) -> str | None:
    """Returns why a method may not have its name; None if it may.

    Args:
        name: The name.
        kind: Kind of the policy, see `PolicyProvenance`.
        folder: First folder of its results within the folder of all results.
    """
    if not _NAME.fullmatch(name):
        return f"the name {name[:64]!r} is none: {_RULE}"
    if name != folder:
        return f"the name is {name!r}, but the results are in the folder {folder[:64]!r}"
    if kind != "built_in" and built_in_description(name):
        return f"{name!r} is the name of a policy of the package, which this one is not"
    return None


def likeness(name: str) -> str:
    """Returns a text that is the same for names that readers could mistake for each other."""
    text = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    for pair, letter in _ALIKE_PAIRS:
        text = text.replace(pair, letter)
    return text
