"""What cgroups and Slurm leave of a machine, read from trees of files as kernels and engines lay them out."""

import pytest

from trainbox import limits


@pytest.fixture
def machine(tmp_path):
    """Write files below a root, and read its limits for a process that the kernel lets run on 16 CPUs."""

    def read(files, **environ):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return limits.read(environ, root=tmp_path, schedulable=16)

    return read


def test_nothing_limits_a_plain_machine(machine):
    """Neither without cgroups nor with those that say so."""
    assert machine({}) == limits.Limits(schedulable=16)
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}
    assert machine(files) == limits.Limits(schedulable=16)


def test_a_quota_and_a_memory_limit_of_version_2(machine):
    """As `docker run --cpus 2.5 --memory 4g` leaves them, where the container's cgroup is the top."""
    found = machine(
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/memory.max": "4294967296\n",
        }
    )
    assert (found.quota, found.memory_bytes, found.threads) == (2.5, 4294967296, 3)


def test_the_tightest_of_all_levels_holds(machine):
    """A job's limit is above the cgroup of its step."""
    found = machine(
        {
            "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
            "sys/fs/cgroup/slurm/job_7/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": "2147483648\n",
            "sys/fs/cgroup/slurm/job_7/step_0/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
        }
    )
    assert (found.quota, found.memory_bytes) == (2.0, 2147483648)


def test_version_1_and_a_path_that_is_the_hosts(machine):
    """In a container the cgroup's path is not mounted and its own limits are at the top."""
    found = machine(
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpuset:/docker/abc\n2:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
        }
    )
    assert (found.quota, found.memory_bytes, found.threads) == (0.5, 1073741824, 1)


def test_no_limit_of_version_1_is_a_number_too(machine):
    """-1 of the quota, and the largest number of pages of the memory."""
    found = machine(
        {
            "proc/self/cgroup": "4:memory:/\n2:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    assert found == limits.Limits(schedulable=16)


@pytest.mark.parametrize(
    ("environ", "cpus", "memory"),
    [
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "8192"}, 4, 8 * 2**30),
        ({"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "6"}, None, 6 * 2**30),
        ({"SLURM_CPUS_PER_TASK": "many", "SLURM_MEM_PER_NODE": "0"}, None, None),
    ],
)
def test_slurm_counts_cpus_a_task_and_mebibytes(machine, environ, cpus, memory):
    """What it does not say, or says in other words, limits nothing."""
    found = machine({}, **environ)
    assert (found.slurm_cpus, found.slurm_memory_bytes, found.threads) == (cpus, memory, cpus or 16)
