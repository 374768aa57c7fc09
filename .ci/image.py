"""Runs the Dockerfile's recipe where no container can be built: `python .ci/image.py ROOT`.

The base image is a minimal Debian of the same release, which debootstrap makes in the new folder
ROOT. Instructions then run in it by chroot, as root, in mounts of their own, without a daemon. That
shows that the system packages suffice and that the user's command works, and not that Docker reads
the file.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = ("LANG", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
"""Variables of the caller that instructions see, beside those of pip."""

_MOUNTED = """
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$@"
"""


def instructions(text: str) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile and their arguments, in order."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, " ".join(rest.split())) for word, _, rest in _parts(joined)]


def _parts(text: str) -> list[tuple[str, str, str]]:
    return [line.partition(" ") for line in text.splitlines() if line.strip()]


@dataclass
class Build:
    """What instructions have set up so far.

    Attributes:
        root: Folder of the image's file system.
        mirror: Where debootstrap finds Debian's packages; None for its default.
        copied: Files of this machine that the image needs here, such as certificates.
    """

    root: Path
    mirror: str | None = None
    copied: tuple[Path, ...] = ()
    variables: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    user: str = "root"
    folder: str = "/"

    def do(self, word: str, rest: str) -> None:
        """Carries out an instruction.

        Raises:
            ValueError: It is none of those that the Dockerfile has.
            subprocess.CalledProcessError: A command failed.
        """
        match word:
            case "FROM":
                self._begin(rest.removeprefix("debian:").removesuffix("-slim"))
            case "ENV" | "ARG":
                for name, value in (part.split("=", 1) for part in shlex.split(rest)):
                    self.variables[name] = Template(value).safe_substitute(self.variables)
            case "RUN":
                self.run(["sh", "-c", rest])
            case "COPY":
                self._copy(*rest.split())
            case "USER":
                self.user = rest
            case "WORKDIR":
                self.folder = rest
            case "CMD":
                self.run(json.loads(rest))
            case _:
                raise ValueError(f"Unknown instruction {word}.")

    def run(self, command: Sequence[str]) -> None:
        """Runs a command in the image, as its user and in its folder."""
        print("+", shlex.join(command), file=sys.stderr, flush=True)
        words = ["env", "-C", self.folder, *command]
        if self.user != "root":
            words = [
                "setpriv",
                f"--reuid={self.user}",
                f"--regid={self.user}",
                "--clear-groups",
                *words,
            ]
            self.variables["HOME"] = f"/home/{self.user}"
        kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith("PIP_")}
        subprocess.run(
            ["unshare", "--mount", "bash", "-euc", _MOUNTED, "mounted", str(self.root), *words],
            env=kept | self.variables,
            check=True,
        )

    def _begin(self, release: str) -> None:
        place = [self.mirror] * (self.mirror is not None)
        command = ["debootstrap", "--variant=minbase", release, str(self.root), *place]
        subprocess.run(command, check=True)
        for path in (Path("/etc/resolv.conf"), *self.copied):
            target = self.root / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)

    def _copy(self, source: str, target: str) -> None:
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for name in allowed((CHECKOUT / ".dockerignore").read_text()):
            found, made = CHECKOUT / source / name, self.root / target.lstrip("/") / name
            made.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, made, symlinks=True, ignore=ignore)
            else:
                shutil.copyfile(found, made)


def allowed(ignored: str) -> list[str]:
    """Returns what a .dockerignore that ignores everything else lets into the context."""
    return [line[1:] for line in ignored.splitlines() if line.startswith("!")]


def main() -> int:
    """Runs the recipe; returns the exit code of the first command that fails, or 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("root", type=Path, help="new folder of the image's file system")
    parser.add_argument("--mirror", help="where debootstrap finds packages (its default)")
    parser.add_argument("--copy", type=Path, nargs="*", default=[], help="files it needs here")
    options = parser.parse_args()
    build = Build(options.root.resolve(), options.mirror, tuple(options.copy))
    try:
        for word, rest in instructions((CHECKOUT / "Dockerfile").read_text()):
            build.do(word, rest)
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
