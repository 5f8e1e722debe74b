"""The largest batch that fits, found by trying, and what a trial may take of the memory."""

import pytest

from trainbox.batch_search import available_bytes, largest, leaves_address_space, resident_bytes, with_margin


@pytest.mark.parametrize(
    ("most", "start", "limit", "found", "tried"),
    [
        (1200, 64, 1438, 1115, [64, 256, 1024, 1438, 1213, 1115]),
        (9999, 64, 1438, 1438, [64, 256, 1024, 1438]),
        (9999, 1438, 1438, 1438, [1438]),
        (100, 64, 10**6, 99, [64, 256, 128, 91, 108, 99]),
        # Where the first one fails, smaller ones are tried.
        (5, 512, 10**6, 5, [512, 128, 32, 8, 2, 4, 6, 5]),
        (1, 64, 1000, 1, [64, 16, 4, 1, 2]),
        (0, 64, 1000, None, [64, 16, 4, 1]),
        (0, 1, 1, None, [1]),
    ],
)
def test_the_largest_batch_is_found_by_few_trials(most, start, limit, found, tried):
    """Larger by four until one fails, then between the two."""
    asked = []

    def fits(batch):
        asked.append(batch)
        return batch <= most

    assert largest(fits, start=start, limit=limit) == found
    assert asked == tried


@pytest.mark.parametrize(
    ("fitting", "unit", "limit", "batch"),
    [(1115, 8, 1438, 944), (1115, 32, 1438, 928), (1438, 32, 1438, 1438), (9, 16, 1438, 7), (1, 8, 1438, 1)],
)
def test_what_is_taken_leaves_a_margin(fitting, unit, limit, batch):
    """Fifteen percent less, in whole units where there is one; all rows where they fit."""
    assert with_margin(fitting, unit=unit, limit=limit) == batch


def machine(root, *, available=8_000_000, own=500_000, space=3_000_000):
    """The files of a kernel that tells these, in KiB."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 16000000 kB\nMemAvailable:   {available} kB\n")
    (root / "proc/self/status").write_text(
        f"Name:\tpython\nVmPeak:\t {space} kB\nVmHWM:\t  {2 * own} kB\nVmRSS:\t  {own} kB\n"
    )
    return root


def test_a_trial_may_take_what_is_left(tmp_path):
    """Of the machine, and of each limit, in which this process counts already."""
    root = machine(tmp_path)
    assert available_bytes(root=root) == 8_000_000 * 1024
    assert available_bytes(None, 10**12, root=root) == 8_000_000 * 1024
    assert available_bytes(2 * 10**9, None, 10**12, root=root) == 2 * 10**9 - 500_000 * 1024
    assert available_bytes(1000, root=root) == 0
    assert resident_bytes(peak=True, root=root) == 2 * resident_bytes(root=root) == 1_000_000 * 1024


def test_what_the_kernel_does_not_tell_limits_nothing(tmp_path):
    """And this process has some memory."""
    assert available_bytes(root=tmp_path) is None
    assert available_bytes(5, root=tmp_path) == 5
    assert 2**20 < resident_bytes() <= resident_bytes(peak=True)


def test_limited_address_space_keeps_a_gibibyte_for_threads(tmp_path):
    """No limit keeps nothing, and this process has none."""
    root = machine(tmp_path)
    enough = 3_000_000 * 1024 + 2**30
    assert leaves_address_space(limit=enough, root=root)
    assert not leaves_address_space(limit=enough - 1, root=root)
    assert leaves_address_space(limit=-1, root=root)
    assert leaves_address_space()
