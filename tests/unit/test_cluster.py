"""Who the workers of a run are, from words, from TF_CONFIG and from Slurm."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainbox import cluster
from trainbox.config import RunConfig
from trainbox.errors import UsageError

SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}


def find(environ=None, **words):
    return cluster.find(RunConfig(**words), environ or {})


def tf_config(task, **jobs):
    return {"TF_CONFIG": json.dumps({"cluster": jobs, "task": task})}


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        ("login", ["login"]),
        ("n[1-3,07-09],login", ["n1", "n2", "n3", "n07", "n08", "n09", "login"]),
        ("gpu-a[1-2]-ib", ["gpu-a1-ib", "gpu-a2-ib"]),
        ("r[0-1]n[09-10]", ["r0n09", "r0n10", "r1n09", "r1n10"]),
    ],
)
def test_slurm_lists_of_hosts(names, hosts):
    assert cluster.expand(names) == hosts


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20, unique=True), st.integers(3, 6))
def test_any_numbers_come_out_as_written(numbers, width):
    written = [str(number).zfill(width) for number in numbers]
    assert cluster.expand(f"node[{','.join(written)}]") == [f"node{number}" for number in written]


@pytest.mark.parametrize("names", ["n[1", "n1]", "n[a-b]", "n[1-]", "", "n[1-99999]"])
def test_what_is_no_list_of_hosts(names):
    with pytest.raises(ValueError, match=r"brackets|no host|in "):
        cluster.expand(names)


def test_a_step_of_slurm_is_a_cluster():
    """Two tasks on each of two nodes: two ports a node, and the third task is the first of the second node."""
    found = find(SRUN)
    first = 20_000 + 7 * 64
    assert found.workers == (f"n1:{first}", f"n1:{first + 1}", f"n2:{first}", f"n2:{first + 1}")
    assert (found.index, found.size, found.source, found.siblings) == (2, 4, "Slurm", 2)
    assert found.notice == f"4, this is number 2 (n2:{first}), the chief is n1:{first}, from Slurm"


def test_a_requeued_job_has_other_ports():
    """The old ones may be held for a while; reserved ones are taken as they are."""
    ports = [find(SRUN | more).workers[0] for more in ({}, {"SLURM_RESTART_COUNT": "1"})]
    assert ports == ["n1:20448", "n1:20464"]
    assert find(SRUN | {"SLURM_STEP_RESV_PORTS": "12345-12348"}).workers[0] == "n1:12345"


@pytest.mark.parametrize("alone", [{"SLURM_STEP_NUM_TASKS": "1"}, {"SLURM_STEP_ID": "batch"}])
def test_one_task_and_the_script_of_a_batch_job_are_alone(alone):
    assert find(SRUN | alone) is None
    assert find({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) is None


def test_the_chief_of_a_tfjob_is_the_first_worker():
    found = find(tf_config({"type": "worker", "index": 0}, chief=["c:1"], worker=["w:2", "w:3"]))
    assert (found.workers, found.index) == (("c:1", "w:2", "w:3"), 1)
    assert find(tf_config({"type": "chief", "index": 0}, chief=["c:1"], worker=["w:2"])).index == 0


def test_words_win_over_tf_config_and_that_over_slurm():
    both = SRUN | tf_config({"type": "worker", "index": 0}, worker=["t:1", "t:2"])
    assert find(both).source == "TF_CONFIG"
    assert find(both, workers="a:1, [::1]:2", worker_index=1).workers == ("a:1", "[::1]:2")


@pytest.mark.parametrize(
    "environ", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}, tf_config({"type": "worker", "index": 0}, worker=["w:1"])]
)
def test_without_others_a_run_is_alone(environ):
    assert find(environ) is None


@pytest.mark.parametrize(
    ("environ", "words", "message"),
    [
        ({"TF_CONFIG": "{"}, {}, "TF_CONFIG is not JSON (Expecting property name"),
        ({"TF_CONFIG": "[]"}, {}, "TF_CONFIG needs the objects cluster and task"),
        (tf_config({"type": "ps", "index": 0}, ps=["p:1"]), {}, "TF_CONFIG: cluster has 'ps', and trainbox"),
        (tf_config({"type": "evaluator"}, worker=["w:1"]), {}, "TF_CONFIG: task has the type 'evaluator'"),
        (tf_config({"type": "worker", "index": 2}, worker=["w:1", "w:2"]), {}, "TF_CONFIG: this is worker 2"),
        (tf_config({"type": "worker", "index": 0}, worker=["w:1", "w:1"]), {}, "TF_CONFIG: w:1 is there twice"),
        (tf_config({"type": "worker", "index": 0}, worker=["w", "w:1"]), {}, "TF_CONFIG: 'w' is not host:port"),
        ({}, {"workers": "a:1,b:70000", "worker_index": 0}, "--workers: 'b:70000' is not host:port"),
        ({}, {"workers": "a:1,b:2"}, "--workers needs --worker-index"),
        ({}, {"strategy": "multi-worker"}, "--strategy multi-worker needs the workers"),
        (SRUN, {"strategy": "towers"}, "--strategy towers is of one process, and Slurm tells of 4 workers"),
        (SRUN | {"SLURM_STEP_NODELIST": "n[1"}, {}, "Slurm's variables of this step cannot be understood (brack"),
        (SRUN | {"SLURM_STEP_NODELIST": "n1"}, {}, "Slurm tells of 4 tasks on n1 as 2(x2), which does not fit"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_cluster_is_said(environ, words, message):
    with pytest.raises(UsageError) as error:
        find(environ, **words)
    assert str(error.value).startswith(message)
