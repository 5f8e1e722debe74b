"""How TensorFlow is configured, in processes of their own: a configuration cannot be taken back."""

import json
import subprocess
import sys

DIVIDED = """
import json
import numpy as np
import tensorflow as tf
from trainbox import runtime
runtime.divide_instead_of_approximating()
x = np.exp(np.random.default_rng(1).uniform(-8, 8, 4096)).astype(np.float32)
one = np.float32(1)
with tf.GradientTape() as tape:
    watched = tf.Variable(x)
    logarithm = tf.math.log(watched)
found = {
    "rsqrt": (tf.math.rsqrt(x), one / np.sqrt(x)),
    "reciprocal": (tf.math.reciprocal(x), one / x),
    "gradient of log": (tape.gradient(logarithm, watched), one / x),
    "normalization": (tf.nn.batch_normalization(one, np.zeros_like(x), x, None, None, 0.0), one / np.sqrt(x)),
}
print(json.dumps({name: a.numpy().tobytes() == b.tobytes() for name, (a, b) in found.items()}))
"""


def test_inverses_are_divisions_to_the_last_bit():
    """As rounded by IEEE 754, like NumPy's, wherever Python code asks for them; TensorFlow's own kernels are not."""
    child = subprocess.run([sys.executable, "-c", DIVIDED], capture_output=True, text=True, check=True)
    same = json.loads(child.stdout)
    assert same == dict.fromkeys(["rsqrt", "reciprocal", "gradient of log", "normalization"], True)
