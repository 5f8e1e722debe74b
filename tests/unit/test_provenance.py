"""What a process can tell of its source, image, runtime, user and surroundings."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainbox import provenance


def git(folder, *arguments):
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path):
    """A git checkout that holds trainbox where trainbox's own does."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    package = tmp_path / "src" / "trainbox"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "First")
    return tmp_path


def image_at(root, **record):
    folder = root / "usr" / "share" / "trainbox"
    folder.mkdir(parents=True)
    (folder / "image.json").write_text(json.dumps(record))
    return root


def test_a_checkout_tells_its_revision_and_whether_it_was_changed(checkout, tmp_path):
    """Files that git does not know count for nothing; a changed one marks the revision."""
    package = checkout / "src" / "trainbox"
    commit = git(checkout, "rev-parse", "HEAD").strip()
    (package / "notes.txt").write_text("")
    assert provenance.revision({}, root=tmp_path, package=package) == commit
    (package / "__init__.py").write_text("changed")
    assert provenance.revision({}, root=tmp_path, package=package) == f"{commit}-dirty"


def test_a_users_repository_around_a_virtualenv_is_not_trainboxs(checkout, tmp_path):
    """An installed trainbox has no revision of its own, whatever repository it lies in."""
    installed = checkout / ".venv" / "site-packages" / "trainbox"
    installed.mkdir(parents=True)
    assert provenance.revision({}, root=tmp_path, package=installed) is None


def test_the_image_and_the_environment_tell_the_revision(tmp_path):
    """In a container there is no checkout: the image's record says it, and TRAINBOX_REVISION wins."""
    image_at(tmp_path, variant="cpu", revision="abc")
    assert provenance.revision({}, root=tmp_path, package=tmp_path) == "abc"
    assert provenance.revision({"TRAINBOX_REVISION": "def"}, root=tmp_path, package=tmp_path) == "def"


def test_an_image_that_was_built_without_a_revision_tells_none(tmp_path):
    """The word unknown is no revision."""
    image_at(tmp_path, revision="unknown")
    assert provenance.revision({}, root=tmp_path, package=tmp_path / "a" / "b") is None


def test_what_is_known_of_the_image(tmp_path):
    """Its record, and the name and digest that whoever started it gave; outside of an image nothing."""
    assert provenance.image({}, root=tmp_path) == {}
    image_at(tmp_path, variant="cpu", revision="abc", requirements_sha256="0f")
    digest = {"TRAINBOX_IMAGE": "trainbox:cpu", "TRAINBOX_IMAGE_DIGEST": "sha256:1"}
    assert provenance.image(digest, root=tmp_path) == {
        "variant": "cpu",
        "requirements_sha256": "0f",
        "name": "trainbox:cpu",
        "digest": "sha256:1",
    }
    assert provenance.image({"APPTAINER_CONTAINER": "/sif/trainbox.sif"}, root=tmp_path)["name"] == "/sif/trainbox.sif"


@pytest.mark.parametrize(
    ("environ", "mark", "kind"),
    [
        ({}, ".dockerenv", "docker"),
        ({}, "run/.containerenv", "podman"),
        ({"APPTAINER_CONTAINER": "/a.sif"}, ".dockerenv", "apptainer"),
        ({"SINGULARITY_CONTAINER": "/a.sif"}, "tmp", "apptainer"),
        ({}, "tmp", "container"),
    ],
)
def test_the_runtime_of_the_image(tmp_path, environ, mark, kind):
    """Each engine leaves its mark; an unknown one is a container all the same."""
    image_at(tmp_path, variant="cpu")
    (tmp_path / mark).parent.mkdir(exist_ok=True)
    (tmp_path / mark).touch()
    assert provenance.runtime(environ, root=tmp_path) == kind


def test_a_virtualenv_inside_somebody_elses_container_is_a_virtualenv(tmp_path):
    """What counts is what trainbox was started from, here the tests' own environment."""
    (tmp_path / ".dockerenv").touch()
    assert provenance.runtime({}, root=tmp_path) == ("venv" if sys.prefix != sys.base_prefix else "docker")


NOBODY = """
import os
from trainbox import provenance
os.setuid(54321)
print(provenance.user())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_without_an_entry_in_passwd_is_a_number():
    """A container runs as any uid, and getpass.getuser would raise."""
    environ = {name: value for name, value in os.environ.items() if name not in ("USER", "LOGNAME")}
    program = subprocess.run([sys.executable, "-c", NOBODY], env=environ, capture_output=True, text=True, check=True)
    assert program.stdout == "54321\n"


def test_packages_are_all_that_is_installed_by_normalized_name():
    """The versions that decide results are there, however their names are spelt; nothing is imported for them."""
    found = provenance.packages()
    assert found["tensorflow-datasets"] == importlib.metadata.version("tensorflow_datasets")
    assert {"keras", "numpy", "trainbox"} <= found.keys()
    assert list(found) == sorted(found)


def test_variables_that_matter_are_kept_and_secrets_are_not():
    """CUDA's, TensorFlow's and Slurm's; not Terraform's, which share a prefix, nor keys of NVIDIA's services."""
    kept = {"CUDA_VISIBLE_DEVICES": "", "NCCL_P2P_DISABLE": "1", "SLURM_JOB_ID": "7", "TF_CPP_MIN_LOG_LEVEL": "2"}
    kept |= {"GLIBC_TUNABLES": "a=b", "NPY_DISABLE_CPU_FEATURES": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    left_out = {"NVIDIA_API_KEY": "k", "TF_VAR_password": "p", "TF_TOKEN_app": "t", "HOME": "/h", "TF_API_KEY": "k"}
    assert provenance.variables(kept | left_out) == kept


def test_the_host_is_named_with_its_processor():
    """The processor decides the last bits on a CPU, so it is named as the kernel names it."""
    host = provenance.host()
    assert host["name"]
    assert host["platform"].startswith("Linux-")
    assert host["processor"] in Path("/proc/cpuinfo").read_text() or host["processor"] == os.uname().machine
    assert host["cpus"] == len(os.sched_getaffinity(0))
    assert set(host["instruction_sets"].split()) <= set(Path("/proc/cpuinfo").read_text().split())
