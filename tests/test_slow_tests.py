"""The table of the nightly tests counts every end once."""

import runpy

from support.processes import ROOT

MAIN = runpy.run_path(str(ROOT / ".ci" / "slow_tests.py"))["main"]

REPORT = """<testsuites><testsuite timestamp="2030-01-02T03:04:05">
<testcase classname="tests.sim.test_a" time="1.6"/>
<testcase classname="tests.sim.test_a" time="2"><failure/></testcase>
<testcase classname="tests.test_b" time="0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted_by_folder_and_a_failure_is_the_exit_code(tmp_path, capsys):
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert MAIN([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:5] == [
        "| sim | 1 | 1 | 0 | 4 |",
        "| tests | 0 | 0 | 1 | 0 |",
        "| all | 1 | 1 | 1 | 4 |",
    ]
    assert lines[-1].startswith("2030-01-02; ")
    assert MAIN([str(tmp_path / "absent.xml")]) == 2
