#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "scikit-learn"]
# ///
"""Make `src/trainbox/data/digits.npz` again from scikit-learn's copy: `uv run tools/make_digits.py`.

The rows stay in scikit-learn's order and the pixels as they are there, 0..16, so that the file can be compared with its
source; `trainbox.data.digits` scales and splits.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from trainbox.data import bundled


def main() -> None:
    """Write the file, after a check that its arrays are the ones that the package expects."""
    source = load_digits()
    images, labels = source.images.astype(np.uint8), source.target.astype(np.uint8)
    if bundled.digest(images, labels) != bundled.SHA256:
        sys.exit("scikit-learn's digits are not the ones that trainbox was made with")
    np.savez_compressed(bundled.FILE, images=images, labels=labels)
    print(f"{bundled.FILE}: {bundled.FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
