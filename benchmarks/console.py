"""Output of benchmarks while they run."""

from fleet_tools.utils import cli


def print_now(options: cli.Options, text: str) -> None:
    """Prints text at once, unless the options ask for JSON or for no output.

    Args:
        options: Options of the program.
        text: The text.
    """
    if not (options.quiet or options.json_output):
        print(text, flush=True)
