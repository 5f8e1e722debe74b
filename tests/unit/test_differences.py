"""In what two manifests differ, and whether it can alter a result."""

import copy

import pytest

from trainbox import differences

MANIFEST = {
    "trainbox": {"version": "0.1.0", "revision": "abc"},
    "runtime": "venv",
    "image": {"digest": "sha256:1", "name": "trainbox"},
    "command": ["trainbox", "train"],
    "seed": 1,
    "config": {"learning_rate": 0.001, "reproducible": True, "model": "net.py:build", "run": "a", "threads": 0},
    "sources": {"run": "flag --run"},
    "code": {"--model": "11"},
    "files": {"--model": "/home/net.py"},
    "plan": {"replicas": 1, "shards": 8, "global_batch": 512, "rows": 64, "epochs": 2, "total_steps": 6},
    "data": {"name": "digits", "full_name": "digits/1.0.0", "path": "/data", "checksums": {"train.tfrecord": "22"}},
    "devices": {"kind": "cpu", "replicas": 1, "names": ["CPU"], "notice": "on the CPU", "driver": ""},
    "host": {"name": "n1", "platform": "Linux", "processor": "Zen", "cpus": 2},
    "user": "kim",
    "python": "3.12.1",
    "packages": {"keras": "3.15.1", "numpy": "2.1.0"},
    "environment": {"TF_ENABLE_ONEDNN_OPTS": "1", "SLURM_JOB_ID": "7", "TF_CPP_MIN_LOG_LEVEL": "2"},
    "starts": [{"time": "now"}],
    "result": {"weights": "33"},
}
CAN = [
    ("trainbox.version", "0.2.0"),
    ("trainbox.revision", "abd"),
    ("image.digest", "sha256:2"),
    ("config.learning_rate", 0.002),
    ("config.threads", 4),
    ("config.model", "net.py:other"),
    ("config.of_another_version", 1),
    ("code.--model", "12"),
    ("plan.shards", 4),
    ("plan.global_batch", 256),
    ("data.full_name", "digits/1.0.1"),
    ("data.checksums.train.tfrecord", "23"),
    ("devices.kind", "gpu"),
    ("devices.names", ["Tesla T4"]),
    ("host.processor", "Xeon"),
    ("python", "3.13.0"),
    ("packages.numpy", "2.2.0"),
    ("packages.keras", None),
    ("environment.TF_ENABLE_ONEDNN_OPTS", "0"),
    ("environment.XLA_FLAGS", "--x"),
    ("fork.weights", "44"),
]
CANNOT = [
    ("runtime", "docker"),
    ("image.name", "other"),
    ("config.model", "/home/ada/net.py:build"),
    ("config.run", "b"),
    ("config.device", "cpu"),
    ("config.log_steps", 7),
    ("config.checkpoint_minutes", 5.0),
    ("config.all_reduce", "nccl"),
    ("files.--model", "/home/ada/net.py"),
    ("plan.replicas", 4),
    ("fork.run", "first"),
    ("data.path", "/scratch"),
    ("host.name", "n2"),
    ("host.cpus", 64),
    ("environment.SLURM_JOB_ID", "8"),
    ("environment.TF_CPP_MIN_LOG_LEVEL", "3"),
    ("environment.CUDA_VISIBLE_DEVICES", "1"),
]
SAYS_NOTHING = [
    ("command", ["trainbox"]),
    ("sources", {}),
    ("starts", []),
    ("user", "lee"),
    ("seed", 2),
    ("seal", {"config": "11"}),
    ("result.weights", "34"),
    ("config.batch_size", 512),
    ("config.dataset", "digits:1.0.0"),
    ("data.name", "digits:1.0.0"),
    ("plan.rows", 32),
    ("plan.epochs", 3),
    ("plan.total_steps", 9),
    ("devices.notice", "on CPUs"),
    ("devices.replicas", 4),
    ("devices.names", ["CPU"] * 4),
]


def changed(path, value):
    """The manifest with one value changed; None takes it away."""
    manifest = copy.deepcopy(MANIFEST)
    section, _, name = path.partition(".")
    if not name:
        manifest[section] = value
        return manifest
    place = manifest.setdefault(section, {})
    if name.startswith("checksums."):
        place, name = place["checksums"], name.removeprefix("checksums.")
    place[name] = value
    if value is None:
        del place[name]
    return manifest


@pytest.mark.parametrize(("path", "value"), CAN)
def test_what_can_alter_a_result_is_named_with_both_values(path, value):
    """Words, code, plan, data, devices and software; an option that this version does not know counts too."""
    found = differences.between(MANIFEST, changed(path, value))
    assert list(found.can_alter) == [path]
    assert found.can_alter[path][1] == (value if not isinstance(value, list) else ", ".join(value))
    assert found.cannot_alter == {}


@pytest.mark.parametrize(("path", "value"), CANNOT)
def test_what_cannot_is_named_apart(path, value):
    """Places, names and how many devices; what an option comes to stands elsewhere."""
    found = differences.between(MANIFEST, changed(path, value))
    assert (found.can_alter, list(found.cannot_alter)) == ({}, [path])


@pytest.mark.parametrize(("path", "value"), SAYS_NOTHING)
def test_who_when_and_what_follows_from_the_rest_is_left_out(path, value):
    """Neither list has it."""
    found = differences.between(MANIFEST, changed(path, value))
    assert (found.can_alter, found.cannot_alter) == ({}, {})


@pytest.mark.parametrize("path", ["plan.replicas", "host.cpus", "config.all_reduce", "config.strategy"])
def test_without_reproducible_the_number_of_devices_matters(path):
    """Sums are added in another order then; one run without it is enough."""
    other = changed(path, "other")
    other["config"]["reproducible"] = False
    assert set(differences.between(MANIFEST, other).can_alter) == {"config.reproducible", path}
