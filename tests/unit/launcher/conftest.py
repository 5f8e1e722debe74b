"""A checkout, and machines for its launcher to find itself on.

Docker, Apptainer and uv are stood in for by short scripts that answer as the real ones do, because a runtime's absence,
refusal or interruption is what is asked about; `tests/image` runs the launcher with the real ones.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# All that the launcher needs of a machine besides a runtime.
NEEDED = (
    *("bash", "cat", "cut", "dirname", "env", "find", "flock", "head", "id", "mkdir", "mv", "python3", "readlink"),
    *("realpath", "rm", "sed", "sha256sum", "sort", "stat", "tail", "timeout", "uname"),
)


class Checkout:
    """A copy of what the launcher reads, a current folder beside it, and a PATH of NEEDED commands and of stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.root, self.cwd, self.bin = folder / "checkout", folder / "work folder", folder / "bin"
        for name in ("src", "requirements", "image", "entrypoint"):
            (self.root / name).mkdir(parents=True)
            (self.root / name / "file").write_text(name)
        for name in ("pyproject.toml", "apptainer.def"):
            (self.root / name).touch()
        (self.root / "src" / "trainbox").mkdir()
        (self.root / "src" / "trainbox" / "__init__.py").write_text('__version__ = "1.2.3"\n')
        (self.root / "requirements" / "cpu.txt").write_text("locked\n")
        (self.root / "Dockerfile").write_text("ARG BASE=debian:trixie\nFROM $BASE\n")
        shutil.copy(ROOT / "trainbox", self.root)
        shutil.copytree(ROOT / "launcher", self.root / "launcher")
        self.cwd.mkdir()
        self.bin.mkdir()
        for command in NEEDED:
            (self.bin / command).symlink_to(shutil.which(command, path="/usr/bin:/bin"))
        self.environ = {"PATH": str(self.bin), "HOME": str(folder)}

    def stand_in(self, name: str, script: str) -> None:
        """Put a command on PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the launcher in the current folder."""
        return subprocess.run(
            [self.root / "trainbox", *words],
            cwd=self.cwd,
            env=self.environ | environ,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def plan(self, *words: str, **environ: str) -> list[str]:
        """The words of the command that a dry run prints last."""
        done = self.run("--dry-run", *words, **environ)
        assert done.returncode == 0, done.stderr
        return shlex.split(done.stdout.splitlines()[-1])


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout on a machine that has neither Docker nor Apptainer."""
    return Checkout(tmp_path)


@pytest.fixture
def docker(checkout) -> Checkout:
    """The same with an engine that has the image."""
    checkout.stand_in("docker", "echo sha256:abc")
    return checkout


@pytest.fixture
def apptainer(checkout) -> Checkout:
    """The same with Apptainer and a SIF."""
    checkout.stand_in("apptainer", "exit 0")
    (checkout.root / "trainbox.sif").touch()
    return checkout


# Python without the half second that pip takes to read its configuration.
PYTHON = f"""
case "$*" in
"-m pip config get global.index-url") echo "$INDEX" ;;
*) exec {shutil.which("python3", path="/usr/bin")} "$@" ;;
esac
"""
# A uv that is noted each time, installs an entry point that tells its process and PYTHONPATH, and may be told to fail.
UV = """
echo "$* <${UV_DEFAULT_INDEX-}>" >> "$HOME/uv.log"
case "$*" in
*--version*) exit 0 ;;
"cache dir") echo "$HOME/cache" ;;
"pip sync"*) [ ! -e "$HOME/fail" ] ;;
"build"*) ;;
*) printf '#!/bin/bash\\necho "$$ <${PYTHONPATH-}> $*"\\n' > "$VENV/bin/trainbox"; /bin/chmod +x "$VENV/bin/trainbox" ;;
esac
"""


@pytest.fixture
def virtualenv(checkout) -> Checkout:
    """A machine that has uv and no container runtime; each call of uv is a line of `uv.log` in HOME."""
    checkout.stand_in("uv", UV)
    checkout.stand_in("python3", PYTHON)
    checkout.environ |= {"VENV": str(checkout.root / ".venv"), "TRAINBOX_RUNTIME": "venv", "INDEX": ""}
    return checkout
