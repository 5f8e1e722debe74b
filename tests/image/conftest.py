"""What the image tests stand on: an engine, an image, and folders to mount."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

STRANGER = 54321  # a uid and gid that no passwd file knows


@pytest.fixture(scope="session")
def unavailable() -> Callable[[str, str], NoReturn]:
    """Skip for want of something (docker, cdi, apptainer, gpu_image), or fail where TRAINBOX_REQUIRE lists it."""

    def skip_or_fail(what: str, reason: str) -> NoReturn:
        if what in os.environ.get("TRAINBOX_REQUIRE", "").split(","):
            pytest.fail(f"TRAINBOX_REQUIRE names {what}: {reason}", pytrace=False)
        pytest.skip(reason)

    return skip_or_fail


def _docker(*words: str, env: dict[str, str] | None = None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}
    )


def _find_image(what: str, name: str, unavailable: Callable[[str, str], NoReturn]) -> str:
    if shutil.which("docker") is None:
        unavailable(what, "docker is not installed")
    if (answer := _docker("version")).returncode:
        unavailable(what, f"no Docker engine answers: {answer.stderr.strip().splitlines()[-1]}")
    if _docker("image", "inspect", name).returncode:
        unavailable(what, f"there is no image {name}; build it first")
    return name


@pytest.fixture(scope="session")
def docker() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the docker client with these words and return what it said."""
    return _docker


@pytest.fixture(scope="session")
def image(unavailable: Callable[[str, str], NoReturn]) -> str:
    """Name of the CPU image under test: TRAINBOX_IMAGE, else trainbox:cpu."""
    return _find_image("docker", os.environ.get("TRAINBOX_IMAGE", "trainbox:cpu"), unavailable)


@pytest.fixture(scope="session")
def gpu_image(unavailable: Callable[[str, str], NoReturn]) -> str:
    """Name of the GPU image under test: TRAINBOX_GPU_IMAGE, else trainbox:gpu."""
    return _find_image("gpu_image", os.environ.get("TRAINBOX_GPU_IMAGE", "trainbox:gpu"), unavailable)


@dataclass(frozen=True, kw_only=True)
class Mounts:
    """A data and an output folder that a stranger may write to, and the words that mount them."""

    data: Path
    output: Path

    @property
    def words(self) -> list[str]:
        return ["--volume", f"{self.data}:/data", "--volume", f"{self.output}:/output"]


@pytest.fixture
def mounts(image: str, tmp_path: Path) -> Iterator[Mounts]:
    """Fresh folders for /data and /output; what a stranger wrote is removed by a container afterwards."""
    folders = Mounts(data=tmp_path / "data", output=tmp_path / "output")
    for folder in (folders.data, folders.output):
        folder.mkdir()
        folder.chmod(0o777)
    yield folders
    _docker("run", "--rm", "--user", "0", *folders.words, image, "sh", "-c", "rm -rf /data/* /output/*")


# No privilege, no network, no name, a read-only root: what a careful platform gives.
CONFINED = (
    *("--user", f"{STRANGER}:{STRANGER}", "--read-only", "--tmpfs", "/tmp"),
    *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
)


@pytest.fixture(scope="session")
def confined() -> tuple[str, ...]:
    """Words for `docker run` that take everything away which training does not need."""
    return CONFINED


@pytest.fixture(scope="session")
def stranger() -> int:
    """The uid and gid of `confined`."""
    return STRANGER


@pytest.fixture(scope="session")
def sif(unavailable: Callable[[str, str], NoReturn]) -> Path:
    """The SIF under test: TRAINBOX_SIF, else trainbox.sif of the checkout."""
    if shutil.which("apptainer") is None:
        unavailable("apptainer", "apptainer is not installed")
    path = Path(os.environ.get("TRAINBOX_SIF", Path(__file__).parents[2] / "trainbox.sif"))
    if not path.exists():
        unavailable("apptainer", f"there is no {path}; build it first")
    return path


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """A folder that Apptainer's user can reach and write, whoever runs the tests."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="trainbox-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)
