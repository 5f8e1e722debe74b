"""What may surround a reproducible run without changing a bit of it, and what `--cpu-baseline` fixes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainbox import processor

WORDS = ("train", "--reproducible", "--epochs", "1", "--no-tensorboard", "--model", "cnn")
# All that a shell may have set and that decides threads or instructions.
SHELL = {
    "OMP_NUM_THREADS": "7",
    "TF_NUM_INTRAOP_THREADS": "7",
    "TF_NUM_INTEROP_THREADS": "1",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
AVX2 = all(flag in processor.instruction_sets().split() for flag in processor.BASELINES["avx2"].flags)
needs_avx2 = pytest.mark.skipif(not AVX2, reason="this CPU has no AVX2")


@pytest.fixture
def elsewhere(place: Any) -> Iterator[Any]:
    """Another working folder, which every user can reach and write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    made = type(place)(folder=folder, data_dir=folder / "data")
    yield made
    made.stop()
    shutil.rmtree(folder)


def another_user() -> tuple[str, ...]:
    """The words that start a program as another user, where that can be and Python is open to all."""
    words = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups")
    if os.getuid() or not shutil.which("setpriv"):
        return ()
    start = "import subprocess, sys, trainbox.config; subprocess.run([sys.executable, '-c', ''], check=True)"
    tried = subprocess.run([*words, sys.executable, "-c", start], cwd="/", capture_output=True)
    return words if tried.returncode == 0 else ()


def test_cores_users_folders_and_variables_do_not_matter(place, elsewhere):
    """On all cores, and on one as another user in another folder with variables of another mind: one digest."""
    here = place.start(*WORDS, "--run", "here", fresh=True)
    prefix = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *another_user())
    there = elsewhere.trainbox(*WORDS, "--run", "there", fresh=True, prefix=prefix, HOME=str(elsewhere.folder), **SHELL)
    assert (here.wait(), there.ended) == (0, 0), here.err + there.err
    notice = "environment: ONEDNN_MAX_CPU_ISA, TF_ENABLE_ONEDNN_OPTS ignored"
    assert f"{notice}: --reproducible and --cpu-baseline decide it" in there.out.splitlines()
    assert elsewhere.run("there").same == place.run("here").same
    manifest = json.loads((elsewhere.run("there").path / "manifest.json").read_text())
    assert manifest["host"]["cpus"] == 1
    assert manifest["environment"]["TF_ENABLE_ONEDNN_OPTS"] == "1"
    assert "ONEDNN_MAX_CPU_ISA" not in manifest["environment"]


@needs_avx2
def test_the_baseline_is_what_onednn_computes_with(place):
    """oneDNN itself says so, and what the shell wants of it changes nothing; later only the same baseline goes on."""
    words = (*WORDS, "--cpu-baseline", "avx2")
    told = place.start(*words, "--run", "told", fresh=True, ONEDNN_VERBOSE="1")
    shell = {"DNNL_MAX_CPU_ISA": "SSE41", "ONEDNN_CPU_ISA_HINTS": "PREFER_YMM"}
    other = place.trainbox(*words, "--run", "other", fresh=True, **shell)
    assert (told.wait(), other.ended) == (0, 0), told.err + other.err
    assert re.findall(r"cpu,isa:(.*)", told.out) == ["Intel AVX2"]
    assert place.run("told").same == place.run("other").same
    manifest = json.loads((place.run("told").path / "manifest.json").read_text())
    assert manifest["config"]["cpu_baseline"] == "avx2"
    assert manifest["environment"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    changed = place.trainbox(*WORDS, "--run", "told")
    assert changed.ended == 2
    assert "--cpu-baseline was avx2 and is native" in changed.complaint
