"""All programs under one name."""

import shutil
import sys

import pytest
from support.processes import ROOT, run_command, run_python

import fleet_tools
from fleet_tools import __main__ as fleet_tools_program

PROGRAMS = fleet_tools_program.PROGRAMS


def test_version_and_a_help_that_lists_every_program(capsys):
    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as stopped:
            fleet_tools_program.main([option])
        assert stopped.value.code == 0
    version, _, listing = capsys.readouterr().out.partition("\n")
    assert version == f"fleet-tools {fleet_tools.__version__}"
    assert all(f" {name} " in listing for name in PROGRAMS)


@pytest.mark.parametrize("arguments", [[], ["colect"], ["--quiet"]])
def test_bad_usage_is_2(arguments, capsys):
    try:
        code = fleet_tools_program.main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert "PROGRAM" in capsys.readouterr().err


def test_a_console_script_finds_modules_of_the_working_directory(tmp_path):
    (tmp_path / "own.py").write_text("import no_such_library\n")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "fleet-tools"  # whose folder Python puts on its path
    script.write_text("import sys\nfrom fleet_tools.__main__ import main\nsys.exit(main())\n")
    words = ["evaluate", "--policy", "own:make", "--tool", "hammer", "--output", "result"]
    done = run_command(sys.executable, script, *words, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert "no_such_library" in done.stderr


HELP = """
import contextlib, io, json, sys
from fleet_tools.__main__ import main
said = {}
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            main([name, "--help"])
        except SystemExit as end:
            code = end.code
    heavy = "pydrake h5py matplotlib pyarrow ray scipy torch tqdm trimesh viser websockets".split()
    said[name] = code, printed.getvalue(), [each for each in heavy if each in sys.modules]
print(json.dumps(said))
"""


def test_help_of_every_program_is_its_own_and_imports_nothing_heavy():
    for name, (code, text, heavy) in run_python(HELP, *PROGRAMS).items():
        assert (code, heavy) == (0, []), name
        assert f"usage: fleet-tools {name}" in text
        assert "--json" in text or "subcommands" in text


def test_a_program_does_the_same_under_both_names(capsys, tmp_path):
    from fleet_tools import collect

    missing = ["--tool", "hamer", "--episodes", "1", "--output", str(tmp_path)]
    codes = [collect.main(missing), fleet_tools_program.main(["collect", *missing])]
    assert codes == [2, 2]
    first, second = capsys.readouterr().err.splitlines()
    assert first.partition(": ")[2] == second.partition(": ")[2]
    assert second.startswith("fleet-tools collect: ")


@pytest.mark.skipif(shutil.which("bash") is None, reason="this system has no bash")
def test_completion_knows_programs_and_their_options(tmp_path):
    script = tmp_path / "completion.bash"
    done = run_command(sys.executable, "-m", "fleet_tools", "completion", "bash")
    script.write_text(done.stdout)
    code = (
        f"source {script}; COMP_WORDS=({{}}); COMP_CWORD={{}}; "
        "$(complete -p fleet-tools | grep -oE '\\-F [^ ]+' | cut -c4-); echo ${{COMPREPLY[@]}}"
    )

    def complete(*words):
        command = code.format(" ".join(words), len(words) - 1)
        return run_command("bash", "-c", command).stdout

    assert "collect" in complete("fleet-tools", "coll")
    assert "--keep-failures" in complete("fleet-tools", "collect", "--keep")
    assert "export" in complete("fleet-tools", "dataset", "exp")
