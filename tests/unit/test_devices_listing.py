"""What is said of every GPU: whether this process may use it, and if not, which variable, entry or runtime is why."""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainbox.devices import Gpu, Inventory, MigInstance, Surroundings, as_data, describe, look, table, warnings

U0, U1, U2, U3 = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "abcd")
FOUR = tuple(
    Gpu(index=index, uuid=uuid, name="NVIDIA A100", driver="570.86.10", pci_address=f"0000:{index:02x}:00.0")
    for index, uuid in enumerate([U0, U1, U2, U3])
)
SLICES = tuple(
    MigInstance(uuid=f"MIG-{n}", gpu_instance=n, compute_instance=0, name="A100 MIG 3g.20gb") for n in (1, 2)
)
MIG = dataclasses.replace(FOUR[1], mig=SLICES)
BARE = Surroundings()
DOCKER, APPTAINER = Surroundings(container="docker"), Surroundings(container="apptainer")
OUT_OF_RANGE = "is out of range: numbers here are 0 to 3 (a container's restart at 0: use UUIDs, or unset it)"
ONE = "one process can use one MIG instance and no other device beside it"


def listed(gpus=FOUR, *, around=BARE, closed=0, **environ):
    inventory = Inventory(gpus=tuple(gpus), closed=closed, driver="570.86.10")
    return as_data(describe(inventory, environ=environ, around=around))


def reasons(gpus=FOUR, **case):
    return [gpu["reason"] for gpu in listed(gpus, **case)["gpus"]]


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        ("2,1", [U2, U1]),
        ("0,2,-1,1", [U0, U2]),
        ("-1", []),
        ("7", []),
        ("0,7,1", [U0]),
        ("", []),
        (None, [U0, U1, U2, U3]),
        ('"0,1"', []),
        (" 0, 1", [U0, U1]),
        ("0,1\r", [U0, U1]),
        ("1gpu2,2ampere", [U1, U2]),
        ("NoDevFiles", []),
    ],
)
def test_the_index_is_cudas_own(value, visible):
    """In the order in which CUDA numbers what the variable leaves, and none for what it hides."""
    rows = listed(**({} if value is None else {"CUDA_VISIBLE_DEVICES": value}))["gpus"]
    numbered = {row["index"]: row["uuid"] for row in rows if row["index"] is not None}
    assert [numbered[index] for index in range(len(numbered))] == visible
    assert [row["uuid"] for row in rows if row["usable"]] == sorted(visible)
    assert all(row["usable"] or row["reason"] for row in rows)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", ["", *["not named in CUDA_VISIBLE_DEVICES='0'"] * 3]),
        (
            "0,7,1",
            [
                "",
                f"CUDA_VISIBLE_DEVICES='0,7,1': its entry '7' {OUT_OF_RANGE}, and ends the list before '1'",
                *["not named in CUDA_VISIBLE_DEVICES='0,7,1'"] * 2,
            ],
        ),
        ("", ["CUDA_VISIBLE_DEVICES='': it is set and empty, which is not the same as not set"] * 4),
        (
            "NoDevFiles",
            [
                "CUDA_VISIBLE_DEVICES='NoDevFiles': its entry 'NoDevFiles' is Slurm's word for a job without GPUs: "
                "ask for them with --gres=gpu:N or --gpus=N"
            ]
            * 4,
        ),
        (
            "'0'",
            [
                "CUDA_VISIBLE_DEVICES=\"'0'\": its entry \"'0'\" holds quote characters, which docker's --env-file "
                "keeps: write the value without them"
            ]
            * 4,
        ),
    ],
)
def test_a_hidden_gpu_says_which_entry_hides_it(value, expected):
    """Each for itself: not named, cut off behind an entry that names none, or hidden with all others."""
    assert reasons(CUDA_VISIBLE_DEVICES=value) == expected


def test_a_gpu_that_cannot_compute_says_so_though_it_is_visible():
    """A lost card, one in MIG mode that was not divided, and one that the cgroup keeps closed."""
    gpus = [FOUR[0], dataclasses.replace(FOUR[1], mig=()), dataclasses.replace(FOUR[2], fault="GPU is lost")]
    data = listed(gpus, closed=1)
    assert [(gpu["index"], gpu["usable"], gpu["reason"]) for gpu in data["gpus"]] == [
        (0, True, ""),
        (None, False, "in MIG mode without a MIG instance, so that it computes nothing"),
        (None, False, "GPU is lost: reset it or reboot"),
        (None, False, "this process has no permission to open it (a job scheduler's cgroup, or the container's)"),
    ]
    assert (data["usable"], data["gpus"][3]["uuid"], data["gpus"][3]["machine_index"]) == (1, None, None)


@pytest.mark.parametrize("value", ["MIG-2", f"MIG-{U1}/2/0", "MIG-2,MIG-1"])
def test_one_mig_instance_is_the_only_device(value):
    """The full and the old name; a second instance says that one process cannot have both."""
    whole, divided = listed([FOUR[0], MIG], CUDA_VISIBLE_DEVICES=value)["gpus"]
    assert (whole["usable"], divided["index"], divided["usable"]) == (False, 0, True)
    assert [(one["uuid"], one["usable"], one["reason"]) for one in divided["mig"]] == [
        ("MIG-1", False, ONE),
        ("MIG-2", True, ""),
    ]


def test_in_another_order_numbers_are_not_guessed():
    """With CUDA_DEVICE_ORDER=FASTEST_FIRST only CUDA knows which GPU a number means; UUIDs stay certain."""
    other = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    data = listed(CUDA_VISIBLE_DEVICES="1", **other)
    assert {(row["index"], row["usable"]) for row in data["gpus"]} == {(None, None)}
    assert data["usable"] == 1
    note = "CUDA_DEVICE_ORDER='FASTEST_FIRST': only CUDA knows which GPU has which number; unset it, or name UUIDs"
    assert data["notes"] == [note]
    assert [(row["index"], row["usable"]) for row in listed(**other)["gpus"]] == [(None, True)] * 4
    assert listed(CUDA_VISIBLE_DEVICES=U2, **other)["gpus"][2]["index"] == 0


def test_what_is_odd_about_a_list_is_a_note():
    """A stray carriage return, and an entry that ends a list behind every GPU."""
    odd = "it holds a carriage return, as files with Windows line ends have"
    assert listed(CUDA_VISIBLE_DEVICES="0\r")["notes"] == [f"CUDA_VISIBLE_DEVICES='0\\r': {odd}"]
    assert listed(CUDA_VISIBLE_DEVICES="0,1,2,3,9")["notes"] == [
        f"CUDA_VISIBLE_DEVICES='0,1,2,3,9': its entry '9' {OUT_OF_RANGE}"
    ]


def test_docker_renumbers_and_the_hosts_number_then_hides_the_gpu():
    """The host's number 1 in both variables: the one GPU of the container has number 0."""
    data = listed(FOUR[1:2], around=DOCKER, NVIDIA_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="1")
    assert (data["usable"], data["gpus"][0]["reason"]) == (
        0,
        "CUDA_VISIBLE_DEVICES='1': its entry '1' is out of range: numbers here are 0 and no other (a container's "
        "restart at 0: use UUIDs, or unset it)",
    )
    assert data["notes"][1:] == [
        "NVIDIA_VISIBLE_DEVICES='1' names GPUs as the host numbers them; in the container their indices restart at 0"
    ]


@pytest.mark.parametrize(
    ("around", "value", "notes"),
    [
        (DOCKER, "all", []),
        (DOCKER, "", []),
        (DOCKER, "void", []),
        (APPTAINER, "all", []),
        (APPTAINER, "1", ["NVIDIA_VISIBLE_DEVICES='1' has no effect on apptainer --nv, which hands in every GPU"]),
    ],
)
def test_nvidias_variable_is_information_only(around, value, notes):
    """It never numbers anything, whatever it holds."""
    data = listed(around=around, NVIDIA_VISIBLE_DEVICES=value, CUDA_VISIBLE_DEVICES="0,1")
    assert (data["usable"], data["notes"]) == (2, notes)


NO_LIBRARY = Inventory(absence="no library")
CONTAINER = "no NVIDIA driver in this container (libnvidia-ml.so.1 was not found): start it with"
DOCKERS = f"{CONTAINER} --gpus all (Compose: compose.gpu.yaml)"


@pytest.mark.parametrize(
    ("inventory", "around", "environ", "message"),
    [
        (NO_LIBRARY, BARE, {}, "no NVIDIA driver is installed (libnvidia-ml.so.1 was not found)"),
        (NO_LIBRARY, DOCKER, {}, DOCKERS),
        (
            NO_LIBRARY,
            DOCKER,
            {"NVIDIA_VISIBLE_DEVICES": "void"},
            f"{DOCKERS}; NVIDIA_VISIBLE_DEVICES='void' keeps NVIDIA's runtime out of it",
        ),
        (
            NO_LIBRARY,
            DOCKER,
            {"NVIDIA_VISIBLE_DEVICES": ""},
            f"{DOCKERS}; NVIDIA_VISIBLE_DEVICES='' keeps NVIDIA's runtime out of it",
        ),
        (
            Inventory(absence="driver not loaded"),
            DOCKER,
            {"NVIDIA_VISIBLE_DEVICES": "none"},
            "NVIDIA_VISIBLE_DEVICES=none hands the driver into the container and no GPU: set it to all, or name GPUs",
        ),
        (NO_LIBRARY, Surroundings(container="podman"), {}, f"{CONTAINER} --device nvidia.com/gpu=all"),
        (NO_LIBRARY, APPTAINER, {}, f"{CONTAINER} --nv"),
        (
            NO_LIBRARY,
            Surroundings(container="kubernetes"),
            {},
            CONTAINER.replace("start it with", "ask for nvidia.com/gpu in the limits of the pod"),
        ),
        (
            Inventory(absence="library does not load", detail="libnvidia-ml.so.1: file too short"),
            BARE,
            {},
            "the NVIDIA driver's libnvidia-ml.so.1 does not load (libnvidia-ml.so.1: file too short): install the "
            "driver again",
        ),
        (
            Inventory(absence="driver not loaded"),
            BARE,
            {},
            "libnvidia-ml.so.1 is here and the driver not loaded: this is a login node, or load it (modprobe nvidia)",
        ),
        (
            Inventory(absence="driver does not answer", detail="NVML does not start: Unknown Error"),
            BARE,
            {},
            "the NVIDIA driver does not answer (NVML does not start: Unknown Error): nvidia-smi should say so too; "
            "reload or reboot",
        ),
        (Inventory(absence="no GPU"), BARE, {}, "the NVIDIA driver is loaded and lists no GPU"),
    ],
)
def test_a_machine_without_gpus_says_why(inventory, around, environ, message):
    """No driver, no runtime that hands it in, none loaded, or a broken one: each has its own remedy."""
    listing = describe(inventory, environ=environ, around=around)
    assert (listing.absence, table(listing)) == (message, [f"no GPU: {message}"])


SLURM = Surroundings(container="apptainer", slurm=True)
LOST = "this is a job of Slurm's whose variables did not get here (--cleanenv, --containall)"
PASS_ON = "pass on the job's CUDA_VISIBLE_DEVICES as APPTAINERENV_CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("around", "environ", "warned"),
    [
        (
            APPTAINER,
            {"SLURM_JOB_GPUS": "2,3"},
            [f"Slurm gave 2 GPUs and this process may use 4: {PASS_ON}"],
        ),
        (
            BARE,
            {"SLURM_GPUS_ON_NODE": "1"},
            ["Slurm gave 1 GPU and this process may use 4: pass on the job's CUDA_VISIBLE_DEVICES"],
        ),
        (BARE, {"SLURM_JOB_GPUS": "0-3"}, []),
        (BARE, {"SLURM_STEP_GPUS": "0,1,2,3", "SLURM_JOB_GPUS": "0"}, []),
        (BARE, {"SLURM_GPUS_ON_NODE": "gpu:a100:4"}, []),
        (BARE, {"SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}, []),
        (
            SLURM,
            {},
            [f"this is a job of Slurm's whose variables did not get here (--cleanenv, --containall): {PASS_ON}"],
        ),
        (SLURM, {"SLURM_JOB_ID": "7"}, []),
        (
            APPTAINER,
            {},
            [
                "no CUDA_VISIBLE_DEVICES and no variable of Slurm's in this container, which has every GPU of the "
                f"host: if it was started with --cleanenv or --containall in a job, {PASS_ON}"
            ],
        ),
        (APPTAINER, {"CUDA_VISIBLE_DEVICES": "0"}, []),
        (BARE, {}, []),
    ],
)
def test_gpus_of_other_jobs_are_warned_of(around, environ, warned):
    """More GPUs than Slurm gave, or a container whose options kept the job's variables out."""
    assert listed(around=around, **environ)["warnings"] == warned


def test_slurms_numbers_are_the_nodes_and_never_cudas():
    """A job on the node's GPUs 2 and 3 has CUDA's 0 and 1."""
    data = listed(FOUR[2:], SLURM_JOB_GPUS="2,3")
    assert [row["usable"] for row in data["gpus"]] == [True, True]
    assert data["notes"] == [
        "Slurm gave SLURM_JOB_GPUS='2,3': GPUs as the node numbers them, which are no indices of CUDA's"
    ]


def test_the_table():
    """Whole GPUs in columns, MIG instances below theirs, and what cannot be known is left out."""
    gpus = [
        dataclasses.replace(FOUR[0], memory_bytes=40 * 2**30, compute_capability=(8, 0)),
        dataclasses.replace(MIG, mig=SLICES[:1]),
    ]
    listing = describe(
        Inventory(gpus=tuple(gpus), closed=1, driver="570.86.10"),
        environ={"CUDA_VISIBLE_DEVICES": "0\r"},
        around=BARE,
    )
    uuid = "GPU-{}-0000-0000-0000-000000000000"
    no = "no: not named in CUDA_VISIBLE_DEVICES='0\\r'"
    assert [re.sub("  +", "  ", line) for line in table(listing)] == [
        "3 GPUs, driver 570.86.10; this process may use 1",
        "index  machine  name  UUID  PCI address  memory  capability  usable",
        f"0  0  NVIDIA A100  {uuid.format('a' * 8)}  0000:00:00.0  40.0 GiB  8.0  yes",
        f"-  1  NVIDIA A100  {uuid.format('b' * 8)}  0000:01:00.0  -  -  {no}",
        f"  A100 MIG 3g.20gb  MIG-1  -  {no}",
        "-  -  GPU  no: this process has no permission to open it (a job scheduler's cgroup, or the container's)",
        "note: CUDA_VISIBLE_DEVICES='0\\r': it holds a carriage return, as files with Windows line ends have",
    ]


def test_the_surroundings_are_read_from_the_marks_that_runtimes_leave(tmp_path):
    """Files of Docker and Podman, Apptainer's and Kubernetes's variables, and the cgroup of a Slurm job."""
    assert look({}, root=tmp_path) == BARE
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    assert look({"APPTAINER_CONTAINER": "/x.sif"}, root=tmp_path) == SLURM
    (tmp_path / "run").mkdir()
    for mark, name in [(".dockerenv", "docker"), ("run/.containerenv", "podman"), (".singularity.d", "apptainer")]:
        (tmp_path / mark).touch()
        assert look({}, root=tmp_path).container == name
    (tmp_path / ".singularity.d").unlink()
    assert look({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, root=tmp_path).container == "kubernetes"


WORDS = st.one_of(
    st.sampled_from(["0", "1,0", "0,7,1", "-1", "all", "none", "void", "", "gpu:2", "0-9", "9-0", "MIG-1", "1" * 5000]),
    st.text(alphabet=st.characters(exclude_characters="\0")),
)
NAMES = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "SLURM_GPUS_ON_NODE",
    "APPTAINER_CONTAINER",
]


@given(
    st.dictionaries(st.sampled_from(NAMES), WORDS),
    st.sampled_from([(), FOUR, (FOUR[0], MIG), (dataclasses.replace(FOUR[0], mig=()),)]),
    st.sampled_from([BARE, DOCKER, APPTAINER, SLURM]),
)
def test_no_environment_makes_it_raise(environ, gpus, around):
    """Whatever the variables hold: each GPU has one line, and one that is not usable has a reason on one line."""
    inventory = Inventory(gpus=gpus, closed=1, absence=None if gpus else "no GPU")
    listing = describe(inventory, environ=environ, around=around)
    data = as_data(listing)
    assert len(data["gpus"]) == len(gpus) + 1
    for row in data["gpus"]:
        assert row["usable"] or row["reason"]
        assert "\n" not in row["reason"]
    assert not any("\n" in line for line in table(listing))
    assert isinstance(warnings(environ, around, usable=2), list)


def test_no_example_asks_docker_for_a_number_of_gpus():
    """`--gpus 0` is a count of none and `--gpus 1` one of the first: single devices are named by "device=…"."""
    root = Path(__file__).parents[2]
    files = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("compose*.yaml"), *root.glob("launcher/*")]
    lines = [line for path in [*files, root / "trainbox"] for line in path.read_text().splitlines() if "docker" in line]
    asked = [match for line in lines for match in re.findall(r"--gpus[ =](\S+)", line)]
    assert asked
    assert {word for word in asked if word != "all" and not word.startswith("'\"device=")} == set()
