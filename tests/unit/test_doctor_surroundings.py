"""The doctor on what surrounds a run: container, limits, folders, foreign packages, .env, versions."""

import re
import sys
from pathlib import Path

import pytest

from trainbox.devices import Gpu, Inventory, Surroundings, describe
from trainbox.doctor import CHECKS, Case
from trainbox.doctor.compatibility import table
from trainbox.limits import Limits

GIB = 2**30
REPOSITORY = Path(__file__).parents[2]
NONE = Inventory(absence="no library")
ONE = Inventory(gpus=(Gpu(index=0, uuid="GPU-a", name="NVIDIA A100"),), driver="580.65.06")


def built(container=None, *, inventory=NONE, environ=None, **more):
    around, environ = Surroundings(container=container), environ or {}
    listing = describe(inventory, environ=environ, around=around)
    return Case(inventory=inventory, listing=listing, around=around, environ=environ, **more)


def found(check, case):
    """The severity and message of each finding."""
    return [(one.severity, one.message) for one in CHECKS[check](case)]


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("none", "NVIDIA_VISIBLE_DEVICES=none hands the driver's libraries into the container and no GPU"),
        ("void", "NVIDIA_VISIBLE_DEVICES='void' keeps NVIDIA's runtime out of the container: no libcuda and no GPU"),
        ("", "NVIDIA_VISIBLE_DEVICES='' keeps NVIDIA's runtime out of the container: no libcuda and no GPU"),
    ],
)
def test_words_that_keep_gpus_out_of_a_container(tmp_path, wish, message):
    """Two different things: a driver without GPUs, and no driver; neither outside of a container."""
    environ = {"NVIDIA_VISIBLE_DEVICES": wish}
    assert found("container", built("docker", environ=environ, root=tmp_path)) == [("warning", message)]
    assert found("container", built(environ=environ, root=tmp_path)) == [("ok", "no container")]
    mended = built("docker", inventory=ONE, environ={"NVIDIA_VISIBLE_DEVICES": "all"}, root=tmp_path)
    assert found("container", mended) == [("ok", "docker, with 1 of the host's GPUs")]


@pytest.mark.parametrize(
    ("container", "remedy"),
    [
        ("docker", "docker run --gpus all … (compose: COMPOSE_FILE=compose.yaml:compose.gpu.yaml)"),
        ("podman", "docker run --gpus all … (podman: start it with --device nvidia.com/gpu=all)"),
        ("apptainer", "apptainer exec --nv …"),
    ],
)
def test_a_container_that_was_started_without_the_hosts_gpus(tmp_path, container, remedy):
    """The host's driver shows in /proc; its device nodes are not there, and with Apptainer its library is not."""
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    case = built(container, root=tmp_path)
    assert found("container", case) == [
        ("failure", f"the host has NVIDIA GPUs, and this {container} container was started without them")
    ]
    assert CHECKS["container"](case)[0].remedy == remedy
    for_cpus = built(container, root=tmp_path, built_for_gpus=False)
    assert found("container", for_cpus) == [("ok", f"{container}, without GPUs")]


def test_a_container_on_a_host_without_gpus(tmp_path):
    """Has none, and that is no fault."""
    assert found("container", built("docker", root=tmp_path)) == [("ok", "docker, without GPUs")]


def test_the_hosts_numbers_are_no_indices():
    """A note where NVIDIA_VISIBLE_DEVICES names some."""
    case = built("docker", inventory=ONE, environ={"NVIDIA_VISIBLE_DEVICES": "1"})
    assert found("container", case) == [
        (
            "note",
            "NVIDIA_VISIBLE_DEVICES='1' names GPUs as the host numbers them; in the container their indices restart "
            "at 0",
        )
    ]


@pytest.mark.parametrize(
    ("limits", "threads", "expected"),
    [
        ({}, 0, ("ok", "16 CPUs")),
        ({"memory_bytes": 64 * GIB}, 16, ("ok", "16 CPUs, 64.0 GiB of memory")),
        ({"quota": 2.5}, 0, ("note", "the cgroup gives the time of 2.5 of the 16 CPUs here: threads follow it")),
        ({}, 17, ("warning", "--threads 17 on 16 CPUs: they get in each other's way")),
        ({"slurm_cpus": 4}, 0, ("note", "Slurm gave 4 of the 16 CPUs here: threads follow Slurm")),
        ({"slurm_cpus": 32}, 0, ("warning", "Slurm gave 32 CPUs a task and this process may run on 16")),
        (
            {"memory_bytes": GIB},
            0,
            (
                "warning",
                "1.0 GiB of memory: loading TensorFlow alone takes 0.6 GiB, and what takes too much is killed (137)",
            ),
        ),
        (
            {"memory_bytes": 8 * GIB, "slurm_memory_bytes": 4 * GIB},
            0,
            (
                "note",
                "Slurm gave 4.0 GiB of memory and the cgroup allows 8.0 GiB: Slurm may end what takes more",
            ),
        ),
    ],
)
def test_limits_against_what_is_seen(limits, threads, expected):
    """Threads follow a limit; more of them than CPUs, or too little memory, are worth a warning."""
    assert found("limits", built(limits=Limits(schedulable=16, **limits), threads=threads)) == [expected]


def places(tmp_path, **more):
    """A case whose folders all lie in one that can be written."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    words = {"root": tmp_path, "data_dir": tmp_path / "data", "output_dir": tmp_path / "runs", **more}
    return built(environ={"HOME": str(tmp_path)}, **words)


def test_folders_can_be_written(tmp_path):
    """Also those that are still to be made; nothing is left in any."""
    case = places(tmp_path)
    assert [one[0] for one in found("folders", case)] == ["ok"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["tmp"]


def test_folders_that_cannot_be_written(tmp_path):
    """No run without its output folder or a temporary one; data may be prepared already, and HOME only helps."""
    (tmp_path / "file").touch()
    closed = tmp_path / "file" / "below"
    case = places(tmp_path, output_dir=closed, data_dir=closed)
    assert found("folders", case) == [
        ("failure", f"the output folder {closed} cannot be written (Not a directory)"),
        (
            "note",
            f"the data folder {closed} cannot be written (Not a directory): a data set that is prepared is enough",
        ),
    ]
    nowhere = built(environ={"HOME": "/proc/nobody"}, root=tmp_path / "none", data_dir=tmp_path, output_dir=tmp_path)
    assert found("folders", nowhere) == [
        ("failure", "no temporary folder can be written"),
        ("note", "HOME /proc/nobody cannot be written (No such file or directory)"),
    ]


def test_a_file_system_without_room(tmp_path):
    """One that is full, or too small for what a run keeps; /proc/sys has no room at all."""
    from trainbox.doctor.checks import folders

    (told,) = folders._room("output", Path("/proc/sys/fs"))
    assert (told.severity, told.message) == ("warning", "the output folder /proc/sys/fs has 0 MiB left")


def test_what_is_written_to_no_mount_is_lost(tmp_path):
    """In a container alone, and for the folders that the image is made for."""
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.parent.mkdir(parents=True)
    mounts.write_text("22 1 0:5 / /data rw - ext4 /dev/sda rw\n")
    (tmp_path / "tmp").mkdir()

    def lost(container):
        return [one.message for one in CHECKS["folders"](built(container, root=tmp_path)) if "mount:" in one.message]

    assert lost("docker") == ["/output is not a mount: what is written there is lost with the container"]
    assert lost(None) == []
    mounts.write_text("22 1 0:5 / /data rw\n23 1 0:5 / /output rw\n")
    assert lost("docker") == []


def test_foreign_python(tmp_path):
    """PYTHONPATH, the user's own packages, and modules of two installations; an isolated Python ignores the first."""
    environ = {"PYTHONPATH": "/home/me/lib"}
    message = "PYTHONPATH='/home/me/lib': modules from there win over the installed ones"
    assert found("foreign packages", built(environ=environ)) == [("warning", message)]
    assert found("foreign packages", built(environ=environ, isolated=True)) == [("ok", "nothing foreign reaches in")]
    user = "/home/me/.local/lib/python3.13/site-packages"
    assert found("foreign packages", built(paths=("/usr/lib/python3", user))) == [
        ("warning", f"packages of the user's own are used: {user}")
    ]
    base = built(environ={"PYTHONUSERBASE": "/scratch/me"}, paths=("/scratch/me/lib/python3.13/site-packages",))
    assert found("foreign packages", base) == [
        (
            "warning",
            "packages of the user's own are used: /scratch/me/lib/python3.13/site-packages "
            "(PYTHONUSERBASE='/scratch/me')",
        )
    ]
    origins = {"tensorflow": tmp_path / "tensorflow/__init__.py", "keras": Path("/elsewhere/keras/__init__.py")}
    assert found("foreign packages", built(site=tmp_path, origins=origins)) == [
        ("warning", f"keras comes from /elsewhere/keras, and TensorFlow from {tmp_path}")
    ]
    preloaded = built(environ={"LD_PRELOAD": "libx.so"})
    assert found("foreign packages", preloaded) == [("note", "LD_PRELOAD='libx.so' is loaded into every process")]


def test_foreign_libraries(tmp_path):
    """A host's cuDNN wins over that of the wheels; a folder without any, or Apptainer's own, is nothing."""
    (tmp_path / "libcudnn.so.9").touch()
    environ = {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path}:/.singularity.d/libs"}
    assert found("foreign packages", built(environ=environ)) == [
        ("warning", f"LD_LIBRARY_PATH has {tmp_path} with libcudnn.so.9, which win over those of the wheels")
    ]
    (tmp_path / "libcudnn.so.9").unlink()
    assert found("foreign packages", built(environ=environ)) == [("ok", "nothing foreign reaches in")]


def test_what_dotenv_sets_and_sets_in_vain():
    """Names and no values; what the linker or the container reads comes too late."""
    given = {"TRAINBOX_EPOCHS": "3", "CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "/x", "UID": "1", "TOKEN": "s"}
    applied = {name: value for name, value in given.items() if name != "CUDA_VISIBLE_DEVICES"}
    assert found(".env", built(dotenv=given, applied=applied)) == [
        ("note", ".env sets TRAINBOX_EPOCHS"),
        ("note", ".env has CUDA_VISIBLE_DEVICES, and the environment wins"),
        (
            "warning",
            ".env sets LD_LIBRARY_PATH, which is read before trainbox starts and has no effect here",
        ),
    ]
    assert found(".env", built()) == [("ok", "no .env in this folder")]
    assert found(".env", built(dotenv={"UID": "1"}, applied={"UID": "1"})) == [
        ("ok", ".env sets nothing that matters here")
    ]


CPU = {"tensorflow-cpu": "2.21.0", "keras": "3.15.1"}
AGAIN = "pip install --require-hashes -r requirements/cpu.txt"


@pytest.mark.parametrize(
    ("packages", "python", "expected", "remedy"),
    [
        (CPU, (3, 13), ("ok", "all as locked"), ""),
        (CPU, (3, 14), ("warning", "Python 3.14 is not one of 3.11 to 3.13"), "python3.13 -m venv .venv"),
        (
            CPU | {"numpy": "1.26.4"},
            (3, 11),
            ("warning", "numpy 1.26.4 is not the 2.4.6 that this release was tested with"),
            AGAIN,
        ),
        (
            CPU | {"tensorflow": "2.21.0"},
            (3, 11),
            (
                "failure",
                "two distributions of tensorflow in one place: tensorflow 2.21.0 and tensorflow-cpu 2.21.0",
            ),
            f"pip uninstall -y tensorflow tensorflow-cpu && {AGAIN}",
        ),
        (
            CPU | {"tf-keras": "2.21.0"},
            (3, 11),
            (
                "failure",
                "tf-keras 2.21.0 is installed: it pulls the full tensorflow over tensorflow-cpu, and stands in for "
                "Keras 3",
            ),
            f"pip uninstall -y tf-keras && {AGAIN}",
        ),
    ],
)
def test_versions_against_the_table(packages, python, expected, remedy):
    """Another version is a warning, two TensorFlows or another Keras a failure."""
    (told,) = CHECKS["versions"](built(packages=packages, python=python, built_for_gpus=False))
    assert ((told.severity, told.message), told.remedy) == (expected, remedy)


def test_the_table_is_the_lock():
    """Both locks agree with it, and the range of Python is that of the package."""
    locks = {
        variant: dict(
            re.findall(r"(?m)^([a-z0-9-]+)==([^ \\]+)", (REPOSITORY / f"requirements/{variant}.txt").read_text())
        )
        for variant in ("cpu", "gpu")
    }
    rules = table()
    for name, version in rules["locked"].items():
        assert {lock[name] for lock in locks.values() if name in lock} == {version}, name
    assert rules["locked_gpu"].items() <= locks["gpu"].items()
    project = (REPOSITORY / "pyproject.toml").read_text()
    (first, last) = (".".join(map(str, rules["python"][end])) for end in ("first", "last"))
    assert f'requires-python = ">={first},<3.{rules["python"]["last"][1] + 1}"' in project
    assert first <= f"{sys.version_info.major}.{sys.version_info.minor}" <= last
