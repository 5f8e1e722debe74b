"""`CUDA_VISIBLE_DEVICES` as the driver reads it: a table of cases and a property."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainbox.devices import Gpu, MigInstance, read_visible_devices

U0 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f0"
U1 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f1"
U2 = "GPU-aaaaaaaa-0000-0000-0000-000000000002"
U3 = "GPU-bbbbbbbb-0000-0000-0000-000000000003"
FOUR = [Gpu(index=index, uuid=uuid, name="NVIDIA A100") for index, uuid in enumerate([U0, U1, U2, U3])]

M1, M2 = "MIG-377e0000-0000-0000-0000-000000000001", "MIG-377e0000-0000-0000-0000-000000000002"
SLICES = (
    MigInstance(uuid=M1, gpu_instance=1, compute_instance=0, name="A100 MIG 3g.20gb"),
    MigInstance(uuid=M2, gpu_instance=2, compute_instance=0, name="A100 MIG 3g.20gb"),
)
MIG = [FOUR[0], dataclasses.replace(FOUR[1], mig=SLICES)]
OUT_OF_RANGE = "is out of range: numbers here are 0 to 3 (a container's restart at 0: use UUIDs, or unset it)"
SECOND = "names a GPU for the second time, which makes CUDA show none"
SLURM = "is Slurm's word for a job without GPUs: ask for them with --gres=gpu:N or --gpus=N"
QUOTES = "holds quote characters, which docker's --env-file keeps: write the value without them"
KIND = "is of another kind than the first"

CASES = [
    # value, what is visible, why the list ended
    (None, [U0, U1, U2, U3], ""),
    ("2,1", [U2, U1], ""),
    ("0,2,-1,1", [U0, U2], "its entry '-1' is negative, which hides all that follow"),
    ("-1", [], "its entry '-1' is negative, which hides all that follow"),
    ("7", [], f"its entry '7' {OUT_OF_RANGE}"),
    ("0,7,1", [U0], f"its entry '7' {OUT_OF_RANGE}"),
    ("", [], "it is set and empty, which is not the same as not set"),
    (" \t", [], "it is set and empty, which is not the same as not set"),
    (" 0, 1", [U0, U1], ""),
    ("0 , 1 ", [U0, U1], ""),
    ("1gpu2,2ampere", [U1, U2], ""),
    ("0-2", [U0], ""),
    ("+1,-0", [U1, U0], ""),
    ("0x1", [U0], ""),
    ("007,3", [], f"its entry '007' {OUT_OF_RANGE}"),
    ("003", [U3], ""),
    ("4294967296", [], f"its entry '4294967296' {OUT_OF_RANGE}"),
    ("1" * 5000, [], f"its entry '{'1' * 78}… {OUT_OF_RANGE}"),
    ("٣", [], "its entry '٣' is neither a number nor a UUID"),
    ("0,,1", [U0], "its entry '' is empty"),
    ("0,", [U0], "its entry '' is empty"),
    ("0,1,0", [], f"its entry '0' {SECOND}"),
    ("0,7,0", [U0], f"its entry '7' {OUT_OF_RANGE}"),
    ("0,00", [], f"its entry '00' {SECOND}"),
    ("NoDevFiles", [], f"its entry 'NoDevFiles' {SLURM}"),
    ("all", [], "its entry 'all' is neither a number nor a UUID"),
    ('"0,1"', [], f"its entry '\"0' {QUOTES}"),
    ("'0'", [], f"its entry \"'0'\" {QUOTES}"),
    (U2, [U2], ""),
    (f"{U3},{U0}", [U3, U0], ""),
    ("GPU-aaaa", [U2], ""),
    (" GPU-bb , GPU-a", [U3, U2], ""),
    ("GPU-8932f937", [], "its entry 'GPU-8932f937' fits 2 GPUs"),
    ("GPU-cccc", [], "its entry 'GPU-cccc' is the UUID of no GPU here"),
    (U2 + "0", [], f"its entry '{U2}0' is the UUID of no GPU here"),
    ("aaaaaaaa", [], "its entry 'aaaaaaaa' is neither a number nor a UUID"),
    (f"{U2},{U2}", [], f"its entry '{U2}' {SECOND}"),
    ("GPU-aa,GPU-aaa", [], f"its entry 'GPU-aaa' {SECOND}"),
    (f"1,{U2}", [U1], f"its entry '{U2}' {KIND}"),
    (f"{U2},1", [U2], f"its entry '1' {KIND}"),
    ("MIG-377e", [], "its entry 'MIG-377e' is no MIG instance here"),
]


@pytest.mark.parametrize(("value", "visible", "cause"), CASES, ids=[repr(case[0])[:30] for case in CASES])
def test_four_gpus(value, visible, cause):
    """The list is read in order, and its first invalid entry ends it."""
    visibility = read_visible_devices(value, FOUR)
    assert [device.identifier for device in visibility.devices] == visible
    assert visibility.cause == cause


ONE_ONLY = "one process can use one MIG instance and no other device beside it"
MIG_CASES = [
    (M2, [M2], ""),
    ("MIG-377e0000-0000-0000-0000-000000000001", [M1], ""),
    (f"{M1},{M2}", [M1], ONE_ONLY),
    (f"MIG-{U1}/2/0", [M2], ""),
    (f"MIG-{U1}/3/0", [], f"its entry 'MIG-{U1}/3/0' is no MIG instance here"),
    ("MIG-377e", [], "its entry 'MIG-377e' fits 2 MIG instances"),
    (f"{M1},{M1}", [], f"its entry '{M1}' {SECOND}"),
    (f"{M1},{U0}", [M1], f"its entry '{U0}' {KIND}"),
    ("0", [U0], ""),
    ("1", [M1], ""),
    (U1, [M1], ""),
    ("0,1", [M1], ONE_ONLY),
    (None, [M1], ONE_ONLY),
]


@pytest.mark.parametrize(("value", "visible", "cause"), MIG_CASES)
def test_a_whole_gpu_and_one_in_mig_mode(value, visible, cause):
    """A process gets one MIG instance at most, and then nothing else."""
    visibility = read_visible_devices(value, MIG)
    assert [device.identifier for device in visibility.devices] == visible
    assert visibility.cause == cause


def test_mig_mode_without_instances_leaves_nothing_to_compute_on():
    """A GPU in MIG mode that was not divided is no device, named or not."""
    gpus = [dataclasses.replace(FOUR[0], mig=())]
    for value, cause in [
        (None, "a GPU in MIG mode without a MIG instance computes nothing"),
        ("0", "its entry '0' is a GPU in MIG mode that has no MIG instance"),
    ]:
        visibility = read_visible_devices(value, gpus)
        assert (visibility.devices, visibility.cause) == ((), cause)


def test_a_carriage_return_is_a_blank_and_is_remarked():
    """The driver skips the \\r of a file with Windows line ends; a user should know that it is there."""
    visibility = read_visible_devices("0,1\r", FOUR)
    assert [device.identifier for device in visibility.devices] == [U0, U1]
    assert visibility.remark == "it holds a carriage return, as files with Windows line ends have"


def test_the_only_gpu_of_a_container_has_number_0():
    """The host's number 1 means nothing inside a container that was given that GPU alone."""
    visibility = read_visible_devices("1", FOUR[1:2])
    assert visibility.devices == ()
    assert "numbers here are 0 and no other (a container's restart at 0" in visibility.cause


def test_in_cudas_own_order_numbers_stay_numbers():
    """Which GPU is the fastest is known to CUDA alone, so a number is passed on and a UUID too."""
    read = {value: read_visible_devices(value, FOUR, order="FASTEST_FIRST").devices for value in (None, "3,1", U2)}
    assert [device.identifier for device in read[None]] == ["0", "1", "2", "3"]
    assert [device.identifier for device in read["3,1"]] == ["3", "1"]
    assert [device.identifier for device in read[U2]] == [U2]


ENTRIES = st.one_of(
    st.sampled_from(["0", "1", " 3", "-1", "GPU-", "GPU-8932", U0, U3, "MIG-", M1, f"MIG-{U1}/1/0", "NoDevFiles", ""]),
    st.integers().map(str),
    st.text(alphabet=st.characters(exclude_characters="\0")),
)


@given(st.one_of(st.none(), st.text(), st.lists(ENTRIES).map(",".join)), st.sampled_from([[], FOUR, MIG, MIG[1:]]))
def test_no_value_makes_it_raise(value, gpus):
    """Whatever the value: no exception, each GPU once, one line of cause for whatever is missing."""
    visibility = read_visible_devices(value, gpus)
    identifiers = [device.identifier for device in visibility.devices]
    assert len(set(identifiers)) == len(identifiers) <= len(gpus)
    assert visibility.cause or value is None or len(identifiers) == value.count(",") + 1
    assert "\n" not in visibility.cause
