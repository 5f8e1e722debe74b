"""trainbox: a training image for TensorFlow and Keras that gives the same result wherever it runs."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "multi_gpu_model"]


def __getattr__(name: str) -> Any:
    # TensorFlow is loaded when this is asked for, and not by `import trainbox`.
    if name != "multi_gpu_model":
        raise AttributeError(f"module 'trainbox' has no attribute {name!r}")

    from trainbox.legacy import multi_gpu_model

    return multi_gpu_model
