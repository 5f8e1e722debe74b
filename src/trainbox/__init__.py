"""trainbox: a training image for TensorFlow and Keras that gives the same result wherever it runs."""

__version__ = "0.1.0"
