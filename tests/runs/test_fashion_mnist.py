"""The tutorial's run on its real images."""

import json
import subprocess
import sys


def test_the_cnn_learns_fashion_mnist_on_two_devices(fashion_mnist_dir, tmp_path):
    """60,000 images through TFDS's own builder, five epochs on two logical CPUs: test accuracy 0.89 or better."""
    command = [sys.executable, "-m", "trainbox", "train", "--dataset", "fashion_mnist", "--offline", "--run", "first"]
    command += ["--data-dir", fashion_mnist_dir, "--output-dir", tmp_path]
    command += ["--device", "cpu", "--logical-devices", "2", "--epochs", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "data: fashion_mnist/3.0.1, 60,000 train, 10,000 test rows of 28×28×1, 10 classes" in done.stdout
    result = json.loads((tmp_path / "first" / "manifest.json").read_text())["result"]
    assert result["step"] == 5 * 469
    assert result["test/accuracy"] >= 0.89
