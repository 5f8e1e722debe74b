"""The launcher's choice: which runtime it takes, and with which flags."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
from pathlib import Path

import pytest

HAS_IMAGE = "echo sha256:abc"
NO_IMAGE_NO_BASE = 'case "$1" in image) echo "Error response from daemon: No such image: $5" >&2 ;; esac; exit 1'
NO_IMAGE_BUT_BASE = f'case "$*" in *trixie*) exit 0 ;; esac; {NO_IMAGE_NO_BASE}'
NO_ENGINE = 'echo "Cannot connect to the Docker daemon. Is the docker daemon running?" >&2; exit 1'


def mounted(command: list[str]) -> list[str]:
    """The values of --mount."""
    return [value for flag, value in itertools.pairwise(command) if flag == "--mount"]


def test_docker_gets_every_flag_that_the_job_needs(docker) -> None:
    """One command line, whole."""
    user = f"{os.getuid()}:{os.getgid()}"
    cwd = docker.cwd
    assert docker.plan("train", "--epochs", "3") == [
        *("docker", "run", "--rm", "--hostname", os.uname().nodename, "--user", user),
        *("--read-only", "--tmpfs", "/tmp", "--shm-size", "1g", "--network", "none"),
        *("--env", "TRAINBOX_DATA_DIR=/data", "--env", "TRAINBOX_OUTPUT_DIR=/output"),
        *("--env", "TRAINBOX_IMAGE=trainbox:cpu", "--env", "TRAINBOX_IMAGE_DIGEST=sha256:abc"),
        *("--mount", f"type=bind,src={cwd},dst={cwd},readonly"),
        *("--mount", f"type=bind,src={cwd}/data,dst=/data"),
        *("--mount", f"type=bind,src={cwd}/output,dst=/output"),
        *("--workdir", str(cwd), "trainbox:cpu", "train", "--epochs", "3"),
    ]


def test_apptainer_gets_every_flag_that_the_job_needs(apptainer) -> None:
    """The same mounts and the same closed network, in Apptainer's words."""
    cwd = apptainer.cwd
    assert apptainer.plan("train") == [
        *("env", "APPTAINERENV_TRAINBOX_DATA_DIR=/data", "APPTAINERENV_TRAINBOX_OUTPUT_DIR=/output"),
        *("apptainer", "run", "--cleanenv", "--no-home", "--no-mount", "cwd", "--net", "--network", "none"),
        *("--mount", f"type=bind,src={cwd},dst={cwd},readonly"),
        *("--mount", f"type=bind,src={cwd}/data,dst=/data"),
        *("--mount", f"type=bind,src={cwd}/output,dst=/output"),
        *("--pwd", str(cwd), f"{apptainer.root}/trainbox.sif", "train"),
    ]


def test_a_sif_is_built_from_the_base_that_is_given(checkout, apptainer) -> None:
    """In the checkout, since the definition names files of it; an image archive takes another bootstrap agent."""
    (checkout.root / "trainbox.sif").unlink()
    base = checkout.cwd / "base.tar"
    done = checkout.run("--dry-run", "train", TRAINBOX_BASE="base.tar", SSL_CERT_FILE="", TRAINBOX_SIF="here.sif")
    build, move, run = map(shlex.split, done.stdout.splitlines())
    assert build[:6] == ["env", "-C", str(checkout.root), "apptainer", "build", "--force"]
    assert [build[i + 1] for i, word in enumerate(build) if word == "--build-arg"] == [
        *("agent=docker-archive", f"base={base}", "variant=cpu", "revision=unknown"),
    ]
    assert build[-2:] == [f"{checkout.root}/.trainbox/new.sif", "apptainer.def"]
    assert move == ["mv", build[-2], f"{checkout.cwd}/here.sif"]
    assert run[-2:] == [f"{checkout.cwd}/here.sif", "train"]


def test_gpus_are_asked_for_only_where_the_machine_has_them(docker, apptainer) -> None:
    """--gpus all and --nv come with the gpu variant, which NVIDIA's devices decide unless TRAINBOX_VARIANT does."""
    command = docker.plan("train", TRAINBOX_VARIANT="gpu")
    assert command[command.index("--gpus") + 1] == "all"
    assert "trainbox:gpu" in command
    assert "--nv" in apptainer.plan("train", TRAINBOX_VARIANT="gpu", TRAINBOX_RUNTIME="apptainer")
    assert "--gpus" not in docker.plan("train", TRAINBOX_VARIANT="cpu")


@pytest.mark.parametrize(
    ("docker", "why"),
    [
        (None, "Docker is not installed"),
        (NO_ENGINE, "Docker has no engine that answers"),
        (NO_IMAGE_NO_BASE, "Docker has neither trainbox:cpu nor its base debian:trixie"),
    ],
)
def test_without_a_container_it_is_a_virtualenv_and_one_line_says_why(checkout, docker: str | None, why: str) -> None:
    """Both reasons stand in one line on stderr; stdout is the command's."""
    if docker:
        checkout.stand_in("docker", docker)
    done = checkout.run("--dry-run", "train", "--run", "it's")
    assert done.stderr == f"trainbox: running in a virtualenv: {why}; Apptainer is not installed\n"
    assert shlex.split(done.stdout.splitlines()[-1]) == [
        f"{checkout.root}/.venv/bin/trainbox",
        "train",
        "--run",
        "it's",
    ]


def test_apptainer_is_second(apptainer) -> None:
    """An engine that does not answer gives way to Apptainer without a word."""
    apptainer.stand_in("docker", NO_ENGINE)
    done = apptainer.run("--dry-run", "train")
    assert ("apptainer run" in done.stdout, done.stderr) == (True, "")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TRAINBOX_RUNTIME": "docker"}, "TRAINBOX_RUNTIME=docker: Docker is not installed"),
        ({"TRAINBOX_RUNTIME": "apptainer"}, "TRAINBOX_RUNTIME=apptainer: Apptainer is not installed"),
        ({"TRAINBOX_RUNTIME": "podman"}, 'TRAINBOX_RUNTIME is "podman"; it can be docker, apptainer or venv'),
        ({"TRAINBOX_VARIANT": "tpu"}, 'TRAINBOX_VARIANT is "tpu"; it can be cpu or gpu'),
    ],
)
def test_a_runtime_asked_for_is_not_replaced(checkout, environ: dict[str, str], message: str) -> None:
    """Exit 2 and one line."""
    done = checkout.run("train", **environ)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"trainbox: {message}\n")


def test_an_image_is_built_when_its_base_is_there(checkout) -> None:
    """A dry run prints the build before the run, and does neither."""
    checkout.stand_in("docker", NO_IMAGE_BUT_BASE)
    ca = checkout.root / "ca.pem"
    ca.write_text("CA")
    lock = hashlib.sha256(b"locked\n").hexdigest()
    done = checkout.run("--dry-run", "train", SSL_CERT_FILE=str(ca))
    build, run = map(shlex.split, done.stdout.splitlines())
    assert build == [
        *("docker", "build", "--target", "cpu", "--tag", "trainbox:cpu", "--build-arg", "BASE=debian:trixie"),
        *("--build-arg", "REVISION=unknown", "--build-arg", "VERSION=1.2.3", "--build-arg", f"LOCK={lock}"),
        *("--secret", f"id=ca,src={ca}", str(checkout.root)),
    ]
    assert run[:3] == ["docker", "run", "--rm"]
    assert sorted(path.name for path in checkout.cwd.iterdir()) == []
    assert not (checkout.root / ".trainbox").exists()


@pytest.mark.parametrize(
    ("machine", "latest", "taken"),
    [("gpu", "gpu", True), ("cpu", "gpu", True), ("cpu", "cpu", True), ("gpu", "cpu", False), ("gpu", "", False)],
)
def test_the_image_of_a_plain_docker_build_is_found(checkout, machine: str, latest: str, taken: bool) -> None:
    """trainbox:latest, of `docker build -t trainbox .`, serves any machine, a CPU image one without GPUs."""
    answer = f'case "$*" in *trainbox:latest*) echo "sha256:def {latest}"; exit 0 ;; esac'
    checkout.stand_in("docker", f"{answer}; {NO_IMAGE_NO_BASE}")
    command = checkout.plan("train", TRAINBOX_VARIANT=machine)
    assert ("trainbox:latest" in command and "TRAINBOX_IMAGE_DIGEST=sha256:def" in command) == taken
    assert "trainbox:latest" not in checkout.plan("train", TRAINBOX_VARIANT=machine, TRAINBOX_IMAGE="other:1")


def test_an_image_made_here_follows_the_sources_and_one_from_elsewhere_stays(docker) -> None:
    """Only a build that the launcher noted is repeated."""
    (docker.root / "src" / "file").write_text("edited")
    assert "build" not in docker.plan("train")
    (docker.root / ".trainbox").mkdir()
    (docker.root / ".trainbox" / "docker-cpu").write_text("older sources\n")
    done = docker.run("--dry-run", "train")
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["build", "run"]


def test_a_registry_that_lacked_the_base_is_not_asked_at_every_start(checkout) -> None:
    """The second start asks the engine alone."""
    log = checkout.cwd / "log"
    checkout.stand_in("docker", f'echo "$1" >> "{log}"; {NO_IMAGE_NO_BASE}')
    checkout.stand_in("python3", "exit 1")
    checkout.run("train")
    assert log.read_text().split() == ["image", "image", "image", "manifest"]
    checkout.run("train")
    assert log.read_text().split()[4:] == ["image", "image", "image"]


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        (["train"], True),
        (["train", "--dataset", "digits"], True),
        (["train", "--dataset=mnist"], True),
        (["train", "--dataset", "mnist:3.0.1"], True),
        (["train", "--dataset", "mnist:3.0.0"], False),
        (["train", "--dataset", "emnist/balanced"], True),
        (["train", "--dataset", "emnist/letters"], False),
        (["train", "--dataset", "cifar10"], False),
        (["evaluate", "cached"], True),
        (["evaluate", "other"], False),
    ],
)
def test_the_network_is_closed_when_everything_is_cached(docker, words: list[str], closed: bool) -> None:
    """A folder that TFDS has not finished does not count."""
    for version in ("mnist/3.0.1", "emnist/balanced/3.1.0", "cifar10/incomplete.AB_3.0.2"):
        (docker.cwd / "data" / version).mkdir(parents=True)
        (docker.cwd / "data" / version / "dataset_info.json").touch()
    for run, dataset in (("cached", "mnist"), ("other", "cifar10")):
        (docker.cwd / "output" / run).mkdir(parents=True)
        (docker.cwd / "output" / run / "config.json").write_text(json.dumps({"dataset": dataset}, indent=2))
    assert ("none" in docker.plan(*words)) == closed


def test_folders_come_from_flags_then_environment_then_dotenv_then_config(docker) -> None:
    """What wins is mounted; a flag's own path exists inside too, since a flag beats the image's variable."""
    (docker.cwd / "run.toml").write_text('data_dir = "/from/toml" # a comment\noutput-dir = "/from/toml"\n')
    (docker.cwd / ".env").write_text("export TRAINBOX_OUTPUT_DIR='/from/dotenv' # a comment\n")
    words = ["train", "--config", "run.toml"]
    assert mounted(docker.plan(*words))[1:] == [
        "type=bind,src=/from/toml,dst=/data",
        "type=bind,src=/from/dotenv,dst=/output",
    ]
    assert mounted(docker.plan(*words, TRAINBOX_OUTPUT_DIR="/env"))[2] == "type=bind,src=/env,dst=/output"
    assert mounted(docker.plan(*words, "--output-dir", "flag", TRAINBOX_OUTPUT_DIR="/env"))[2:] == [
        f"type=bind,src={docker.cwd}/flag,dst=/output",
        f"type=bind,src={docker.cwd}/flag,dst={docker.cwd}/flag",
    ]
    assert mounted(docker.plan("train", TFDS_DATA_DIR="/tfds"))[1] == "type=bind,src=/tfds,dst=/data"


def test_folders_are_made_by_the_caller(docker) -> None:
    """An engine would make them as root."""
    assert docker.run("train").returncode == 0
    assert sorted(path.name for path in docker.cwd.iterdir()) == ["data", "output"]
    (docker.cwd / "taken").touch()
    done = docker.run("train", "--output-dir", "taken/output")
    assert (done.returncode, done.stderr) == (
        2,
        'trainbox: cannot make the output folder "taken/output": name another with --output-dir\n',
    )


def test_own_code_elsewhere_is_mounted_at_its_own_path(docker, tmp_path: Path) -> None:
    """Read-only, its folder; what lies in the current folder is there already."""
    elsewhere = tmp_path / "a, b"
    elsewhere.mkdir()
    (elsewhere / "net.py").touch()
    (docker.cwd / "net.py").touch()
    inside = docker.plan("train", "--model", "net.py:build")
    outside = docker.plan("train", "--model", "../a, b/net.py:build")
    assert len(mounted(inside)) == 3
    assert mounted(outside)[1] == f'type=bind,"src={elsewhere}","dst={elsewhere}",readonly'


@pytest.mark.parametrize("environ", [{"TRAINBOX_EPOCHS": "3", "TRAINBOX_RUNTIME": "", "CUDA_VISIBLE_DEVICES": "0,2"}])
def test_variables_of_the_job_pass_and_those_of_the_host_do_not(docker, apptainer, environ: dict[str, str]) -> None:
    """Docker reads the values from its environment, where `ps` shows none; Apptainer's --env would split at commas."""
    environ = environ | {"SLURM_JOB_ID": "7", "PYTHONPATH": "/host", "TRAINBOX_DATA_DIR": "/data set", "LD_PRELOAD": ""}
    command = docker.plan("train", **environ)
    passed = [value for flag, value in itertools.pairwise(command) if flag == "--env" and "=" not in value]
    assert sorted(passed) == ["CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "TRAINBOX_EPOCHS"]
    command = apptainer.plan("train", **environ | {"TRAINBOX_RUNTIME": "apptainer"})
    assert sorted(command[1 : command.index("apptainer")]) == [
        "APPTAINERENV_CUDA_VISIBLE_DEVICES=0,2",
        "APPTAINERENV_SLURM_JOB_ID=7",
        "APPTAINERENV_TRAINBOX_DATA_DIR=/data",
        "APPTAINERENV_TRAINBOX_EPOCHS=3",
        "APPTAINERENV_TRAINBOX_OUTPUT_DIR=/output",
    ]
