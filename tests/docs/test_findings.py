"""The page "What we found": its table is that of the stored results."""

import runpy

import pytest
from support.pages import DOCS

pytest.importorskip("torch", reason="results are read by what the extra `learning` needs")


def test_the_table_is_that_of_the_stored_results():
    script = runpy.run_path(str(DOCS / "images" / "findings_images.py"))
    assert script["TABLE_FILE"].read_text(encoding="utf-8") == script["table"]()
