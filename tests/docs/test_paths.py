"""Paths in tutorials follow from one block to the next, from the top of the page to its end."""

import re
from collections.abc import Iterable

import pytest
from support.pages import TEXTS, blocks, links, name

PAGES = [page for page in TEXTS if page.parent.name in ("tutorials", "getting_started")]
FOLDER = r"(?:runs|results|data)/\w[\w/-]*"
READ = re.compile(rf"(?<![\w./-]){FOLDER}")
"""A folder that a program makes: of a training or fleet, an evaluation, or a dataset."""
OUTPUT = re.compile(rf"--output[ =]({FOLDER})")
EXPORT = re.compile(rf"export ({FOLDER}) --to (\w+)")
UNNAMED = re.compile(r"collect (?!.*--output).*")
"""A collection whose folder is named by its task."""
SAC = re.compile(r"examples\.reinforcement_learning\.sac learn")
"""An agent, which goes to a folder of its own."""
FORMER = re.compile(r"-former-\d+$")


def made(lines: Iterable[str]) -> list[str]:
    """Returns what the folders begin with that commands make."""
    text = "\n".join(lines)
    exported = [f"{folder}-{format}" for folder, format in EXPORT.findall(text)]
    unnamed = ["data/"] if UNNAMED.search(text) else []
    return [*OUTPUT.findall(text), *exported, *unnamed, *(["runs/sac"] if SAC.search(text) else [])]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_page_reads_has_been_made_on_it_or_on_a_page_that_it_names(page):
    linked = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
    linked = [each for each in linked if each.suffix == ".md"]
    known = [path for each in linked for path in made(block.code for block in blocks(each))]
    lines, lacking = page.read_text().splitlines(), []
    for number, line in enumerate(lines, start=1):
        known += made([line])
        for found in READ.findall(line):
            if not any(FORMER.sub("", found).startswith(each) for each in known):
                lacking.append(f"line {number}: {found}")
    assert not lacking, f"{name(page)} names folders that nothing has made: {lacking}"
