"""How TensorFlow is configured, in processes of their own: a configuration cannot be taken back."""

import json
import os
import subprocess
import sys

DIVIDED = """
import json
import numpy as np
import tensorflow as tf
from trainbox import runtime
runtime.keep_order_of_sums(shards=8, reproducible=True)
runtime.divide_instead_of_approximating()
x = np.exp(np.random.default_rng(1).uniform(-8, 8, 4096)).astype(np.float32)
one = np.float32(1)

@tf.function(autograph=False, input_signature=[tf.TensorSpec([4096], tf.float32)])
def compiled(x):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        logarithm, inverse = tf.math.log(x), tf.math.reciprocal(x)
    return {
        "rsqrt": tf.math.rsqrt(x),
        "reciprocal": tf.math.reciprocal(x),
        "gradient of log": tape.gradient(logarithm, x),
        "gradient of reciprocal": tape.gradient(inverse, x),
        "normalization": tf.nn.batch_normalization(one, tf.zeros_like(x), x, None, None, 0.0),
    }
root, whole = one / np.sqrt(x), one / x
wanted = {"rsqrt": root, "reciprocal": whole, "gradient of log": whole, "normalization": root}
wanted["gradient of reciprocal"] = -whole / x
found = {name: (value, wanted[name]) for name, value in compiled(tf.constant(x)).items()}
print(json.dumps({name: a.numpy().tobytes() == b.tobytes() for name, (a, b) in found.items()}))
"""


def test_inverses_are_divisions_to_the_last_bit():
    """As rounded by IEEE 754, like NumPy's, wherever Python code asks for them; TensorFlow's own kernels are not."""
    child = subprocess.run([sys.executable, "-c", DIVIDED], capture_output=True, text=True, check=True)
    same = json.loads(child.stdout)
    names = ["rsqrt", "reciprocal", "gradient of log", "gradient of reciprocal", "normalization"]
    assert same == dict.fromkeys(names, True)


THREADS = """
import json
import tensorflow as tf
from trainbox import runtime
from trainbox.config import RunConfig
from trainbox.devices import Selection
found = []
for replicas, words in ((1, {"reproducible": True}), (1, {"threads": 5}), (1, {}), (64, {})):
    names = ("CPU",) * replicas
    selection = Selection(kind="cpu", replicas=replicas, visible_devices="", names=names, notice="")
    runtime.configure(RunConfig(**words), selection)
    threading = tf.config.threading
    found.append([threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()])
print(json.dumps(found))
"""


def test_threads_follow_what_slurm_leaves_unless_asked_or_reproducible():
    """A reproducible run has two whatever the machine, since their number decides bits; replicas share the CPUs."""
    environ = {**os.environ, "SLURM_CPUS_PER_TASK": "1"}
    child = subprocess.run([sys.executable, "-c", THREADS], env=environ, capture_output=True, text=True, check=True)
    intra, inter = (0, 0) if len(os.sched_getaffinity(0)) == 1 else (1, 2)
    assert json.loads(child.stdout) == [[2, 0], [5, inter], [intra, inter], [1, inter]]


IMPORTED = """
import importlib, json, pkgutil
import trainbox
names = [info.name for info in pkgutil.walk_packages(trainbox.__path__, "trainbox.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
import tensorflow as tf
from trainbox import runtime, strategy
from trainbox.config import RunConfig
from trainbox.devices import Selection
selection = Selection(kind="cpu", replicas=4, visible_devices="", names=("CPU",) * 4, notice="")
runtime.configure(RunConfig(), selection)
mirrored = strategy.build(RunConfig(), selection)
print(json.dumps([len(names) > 90, mirrored.num_replicas_in_sync, len(tf.config.list_logical_devices("CPU"))]))
"""


def test_no_import_touches_the_devices_before_they_are_configured():
    """B7: with every module loaded, the CPU can still be split into four for a strategy."""
    child = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout.splitlines()[-1]) == [True, 4, 4]
