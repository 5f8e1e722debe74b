"""The launcher's virtualenv: set up once, never taken for complete when it is not."""

from __future__ import annotations

import subprocess
from pathlib import Path


def calls(virtualenv) -> list[str]:
    """Each call of uv that installs locked packages."""
    lines = (Path(virtualenv.environ["HOME"]) / "uv.log").read_text().splitlines()
    return [line for line in lines if line.startswith("pip sync")]


def installs(virtualenv) -> list[list[str]]:
    """The requirement files of each of them, but for bootstrap.txt."""
    files = [[Path(word).stem for word in call.split() if word.endswith(".txt")] for call in calls(virtualenv)]
    return [[stem for stem in stems if stem != "bootstrap"] for stems in files]


def test_a_virtualenv_is_set_up_once(virtualenv) -> None:
    """The second start installs nothing, edited sources are installed anew, and the user's Python packages stay out."""
    first = virtualenv.run("train", "--run", "a b", PYTHONPATH="/host")
    assert first.returncode == 0, first.stderr
    assert first.stdout.split(" ", 1)[1] == "<> train --run a b\n"
    virtualenv.run("train")
    assert len(installs(virtualenv)) == 1
    (virtualenv.root / "src" / "file").write_text("edited")
    virtualenv.run("train")
    assert len(installs(virtualenv)) == 2


def test_a_set_up_that_failed_is_not_taken_for_complete(virtualenv) -> None:
    """Exit 1 and the step by name; the next start begins again."""
    fail = Path(virtualenv.environ["HOME"]) / "fail"
    fail.touch()
    done = virtualenv.run("train")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith('trainbox: the set-up stopped at "')
    assert "uv pip sync" in done.stderr.splitlines()[-1]
    fail.unlink()
    assert virtualenv.run("train").returncode == 0
    assert len(installs(virtualenv)) == 2


def test_the_tests_add_their_packages_and_training_leaves_them(virtualenv) -> None:
    """Training and testing in turn must not undo each other."""
    virtualenv.run("train")
    virtualenv.run("test")
    virtualenv.run("train")
    assert installs(virtualenv) == [["cpu"], ["cpu", "dev"]]
    (virtualenv.root / "src" / "file").write_text("edited")
    virtualenv.run("train")
    assert installs(virtualenv)[-1] == ["cpu", "dev"]


def test_pips_index_is_handed_to_uv(virtualenv) -> None:
    """uv does not read pip.conf; what its own variable says wins."""
    index = "file:///mirror/simple"
    virtualenv.run("train", INDEX=index)
    assert calls(virtualenv)[-1].endswith(f" <{index}>")
    (virtualenv.root / "src" / "file").write_text("edited")
    virtualenv.run("train", INDEX=index, UV_DEFAULT_INDEX="file:///own")
    assert calls(virtualenv)[-1].endswith(" <file:///own>")


def test_a_virtualenv_of_somebody_else_is_left_alone(virtualenv) -> None:
    """Exit 2, and what lies in .venv still lies there."""
    own = virtualenv.root / ".venv" / "own"
    own.mkdir(parents=True)
    done = virtualenv.run("train")
    assert done.returncode == 2
    assert done.stderr.startswith(f"trainbox: {own.parent} is not of trainbox's making: move it away")
    assert own.exists()


def test_python_that_is_missing_or_bare_is_named_with_the_package_that_brings_it(checkout) -> None:
    """Debian's python3 comes without ensurepip."""
    checkout.stand_in("python3", 'case "$*" in *venv*|*version_info*) exit 0 ;; esac; exit 1')
    done = checkout.run("train", TRAINBOX_RUNTIME="venv")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("this Python has neither: apt-get install python3-venv")
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        checkout.stand_in(name, 'case "$*" in --version) echo Python 3.9.2; exit 0 ;; esac; exit 1')
    done = checkout.run("train", TRAINBOX_RUNTIME="venv")
    assert done.returncode == 2
    assert "needs Python 3.11, 3.12 or 3.13 and found Python 3.9.2: apt-get install python3\n" in done.stderr


def test_the_launcher_becomes_the_job(virtualenv) -> None:
    """Signals reach the job because it has the launcher's process."""
    virtualenv.run("train")
    process = subprocess.Popen(
        [virtualenv.root / "trainbox", "train"], cwd=virtualenv.cwd, env=virtualenv.environ, stdout=subprocess.PIPE
    )
    output, _errors = process.communicate(timeout=30)
    assert int(output.split()[0]) == process.pid


def test_words_after_test_are_pytests(checkout) -> None:
    """The tests run in the virtualenv whatever else the machine has."""
    checkout.stand_in("docker", "exit 0")
    plan = checkout.plan("test", "-k", "a and b")
    assert (plan[0], plan[-2:]) == (f"{checkout.root}/.venv/bin/pytest", ["-k", "a and b"])
