"""A real Slurm of two nodes runs the SIF by the job scripts of examples/slurm: requeued, preempted, cancelled."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slurm

SCRIPTS = Path(__file__).parents[2] / "examples" / "slurm"
STEPS = 45  # an epoch: 1,438 rows in batches of 32
LONG = ("--device", "cpu", "--reproducible", "--model", "mlp", "--batch-size", "32", "--seed", "7")


def slurm(*words: object) -> str:
    """What one of Slurm's commands says."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(sign: Callable[[], bool], *, seconds: float, why: Callable[[], str]) -> None:
    """Wait until there is a sign; a failure tells why there was none."""
    deadline = time.monotonic() + seconds
    while not sign():
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job, and the file that it writes to."""

    number: str
    log: Path
    output: Path

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def show(self) -> dict[str, str]:
        """What Slurm knows of it: JobState, Restarts, ExitCode (exit code:signal) and more."""
        return dict(re.findall(r"(\w+)=(\S*)", slurm("scontrol", "show", "job", self.number)))

    def reaches(self, epoch: int, *, times: int = 1) -> Job:
        """Wait until it has told of that epoch so many times; a run that goes on later tells of it once."""
        pattern = re.compile(rf"^epoch +{epoch}/", re.MULTILINE)
        until(lambda: len(pattern.findall(self.said)) >= times, seconds=90, why=lambda: f"{self.show()}\n{self.said}")
        return self

    def ends(self) -> tuple[str, str]:
        """Its state and exit code, once it has ended."""
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
        until(lambda: self.show()["JobState"] in over, seconds=120, why=lambda: f"{self.show()}\n{self.said}")
        return self.show()["JobState"], self.show()["ExitCode"]

    def begins_again(self, restarts: int) -> None:
        """Wait until it is queued again for that time, and do not let it wait for its time."""
        queued = {"Restarts": str(restarts), "JobState": "PENDING"}
        until(lambda: queued.items() <= self.show().items(), seconds=60, why=lambda: f"{self.show()}\n{self.said}")
        slurm("scontrol", "update", f"JobId={self.number}", "StartTime=now")

    def same(self, run: str | None = None) -> tuple[str, str]:
        """The digests that two equal runs share."""
        result = json.loads((self.output / (run or f"slurm-{self.number}") / "manifest.json").read_text())["result"]
        return result["weights"], result["metrics"]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A folder on the file system that the nodes share, from which jobs are submitted."""

    folder: Path
    image: Path

    def submit(self, script: str, *words: str, options: tuple[str, ...] = ()) -> Job:
        """A job of that script; `--unsquash`, because this Apptainer is not setuid, and no GPU is taken."""
        told = f"ALL,IMAGE={self.image},DATA={self.folder}/data,OUTPUT={self.folder}/output,FLAGS=--unsquash"
        small = ("--gpus-per-node=0", "--cpus-per-task=1", f"--export={told}", f"--chdir={self.folder}")
        number = slurm("sbatch", "--parsable", *small, *options, SCRIPTS / script, *words).strip()
        return Job(
            number=number,
            log=self.folder / f"trainbox-{number}.log",
            output=self.folder / "output",
        )


@pytest.fixture(scope="module")
def site(unavailable, sif) -> Site:
    """The cluster that .ci/slurm has started."""
    if shutil.which("sbatch") is None or subprocess.run(["sinfo"], capture_output=True).returncode:
        unavailable("slurm", "there is no Slurm of .ci/slurm")
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="trainbox-slurm-"))
    for path in (folder, folder / "data", folder / "output"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    image = folder / "trainbox.sif"
    shutil.copy(sif, image)
    image.chmod(0o755)
    yield Site(folder=folder, image=image)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def straight(site) -> tuple[str, str]:
    """The digests of a run on one node that nobody disturbed."""
    job = site.submit("one-node.sbatch", *LONG, "--epochs", "60")
    assert job.ends() == ("COMPLETED", "0:0"), job.said
    return job.same()


def test_requeued_and_preempted_in_the_middle_of_an_epoch_it_ends_with_the_same_bits(site, straight):
    """SIGUSR1 makes the job queue itself, one with more right to the nodes preempts it, and no bit is lost."""
    job = site.submit("requeue.sbatch", *LONG, "--epochs", "60").reaches(5)
    slurm("scancel", "--signal=USR1", job.number)
    job.begins_again(1)
    job.reaches(25)
    slurm("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--wrap=true", "--output=/dev/null")
    job.begins_again(2)
    assert job.ends() == ("COMPLETED", "0:0"), job.said
    assert job.same() == straight
    stops = re.findall(r"stopped by (\w+); saved at step (\d+)", job.said)
    assert [name for name, _ in stops] == ["SIGUSR1", "SIGTERM"], job.said
    assert any(int(step) % STEPS for _, step in stops), stops
    assert re.findall(r"Exited with exit code (\d+)", job.said) == ["138", "143"]
    assert re.findall(r"^going on from step (\d+)", job.said, re.MULTILINE) == [step for _, step in stops]


def test_two_nodes_share_a_run_and_one_of_them_ends_it(site, straight):
    """`srun` on two nodes just works: one folder, the bits of one node; stopped on two nodes, ended on one."""
    job = site.submit("several-nodes.sbatch", *LONG, "--epochs", "60", "--run", "shared").reaches(3)
    number = job.number
    assert f"(n1:{20_000 + int(number) * 64 % 12_000}), the chief is n1:" in job.said
    assert "workers: 2, this is number 1 (n2:" in job.said
    slurm("scancel", "--signal=USR1", number)
    assert job.ends() == ("FAILED", "138:0"), job.said
    again = site.submit("one-node.sbatch", *LONG, "--epochs", "60", "--run", "shared")
    assert again.ends() == ("COMPLETED", "0:0"), again.said
    assert again.same("shared") == straight


def test_a_cancelled_job_has_saved(site):
    """`scancel` gives it the time to save, and Slurm sees 143."""
    job = site.submit("one-node.sbatch", *LONG, "--epochs", "100000").reaches(3)
    slurm("scancel", job.number)
    assert job.ends() == ("CANCELLED", "143:0"), job.said
    assert "trainbox: stopped by SIGTERM; saved at step " in job.said


def test_each_seed_of_an_array_has_a_run_of_its_own(site):
    """Named by its seed, and with other weights than the others."""
    words = ("--device", "cpu", "--model", "mlp", "--batch-size", "256", "--epochs", "1")
    job = site.submit("seeds.sbatch", *words, options=("--array=1-2",))
    tasks = lambda: re.findall(r"JobState=(\w+)", slurm("scontrol", "show", "job", job.number))  # noqa: E731
    until(lambda: tasks() == ["COMPLETED"] * 2, seconds=120, why=lambda: slurm("scontrol", "show", "job", job.number))
    manifests = [json.loads((job.output / f"seed-{seed}" / "manifest.json").read_text()) for seed in (1, 2)]
    assert manifests[0]["result"]["weights"] != manifests[1]["result"]["weights"]
