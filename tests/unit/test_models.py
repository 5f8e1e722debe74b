"""Models by name and from a user's file: sizes, shapes and what is said when they do not fit."""

import hashlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from trainbox import models
from trainbox.errors import UsageError

SHAPE = (8, 8, 1)


def own(folder, text, function="build", *, name="net.py", **offered):
    path = folder / name
    path.write_text("import keras\nfrom keras import layers\n" + text)
    return models.build(f"{path}:{function}", input_shape=SHAPE, num_classes=10, **offered)


def message_of(folder, text, **offered):
    with pytest.raises(UsageError) as raised:
        own(folder, text, **offered)
    return str(raised.value)


@pytest.mark.parametrize(
    ("shape", "classes", "cnn", "mlp"),
    [
        # conv 3·3·C·32 + 32, dense (⌊(H−2)/2⌋·⌊(W−2)/2⌋·32)·64 + 64, dense 64·K + K
        ((8, 8, 1), 10, 320 + 288 * 64 + 64 + 650, 64 * 512 + 512 + 512 * 513 + 513 * 10),
        ((28, 28, 1), 10, 320 + 5408 * 64 + 64 + 650, 784 * 512 + 512 + 512 * 513 + 513 * 10),
        ((28, 28, 1), 47, 320 + 5408 * 64 + 64 + 65 * 47, 784 * 512 + 512 + 512 * 513 + 513 * 47),
        ((32, 32, 3), 100, 896 + 7200 * 64 + 64 + 6500, 3072 * 512 + 512 + 512 * 513 + 513 * 100),
    ],
)
def test_built_in_models_have_the_sizes_of_their_sources(shape, classes, cnn, mlp):
    """Both take their sizes from the data set and end in one logit for each class."""
    for name, count in (("cnn", cnn), ("mlp", mlp)):
        model = models.build(name, input_shape=shape, num_classes=classes)
        assert model.count_params() == count
        assert model.output_shape == (None, classes)
        assert models.gives_logits(model, input_shape=shape)


def test_logits_stay_float32_in_half_precision():
    """Under a mixed policy the layers compute in 16 bits and the loss still gets 32."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        for name in models.BUILT_IN:
            model = models.build(name, input_shape=SHAPE, num_classes=10)
            assert (model.layers[-2].compute_dtype, model.outputs[0].dtype) == ("float16", "float32")
    finally:
        keras.config.set_dtype_policy(policy)


def test_the_callers_seed_decides_the_weights():
    """The same seed gives the same initial weights, another one others."""

    def kernel(seed):
        keras.utils.set_random_seed(seed)
        return models.build("cnn", input_shape=SHAPE, num_classes=10).get_weights()[0]

    assert np.array_equal(kernel(1), kernel(1))
    assert not np.array_equal(kernel(1), kernel(2))


def test_too_small_images_are_refused():
    """A built-in model that the images do not fit says so in one line."""
    with pytest.raises(UsageError) as raised:
        models.build("cnn", input_shape=(2, 2, 1), num_classes=10)
    message = str(raised.value)
    assert message.startswith("--model cnn cannot take rows of shape (2, 2, 1) (ValueError: ")
    assert message.endswith("); use another model")
    assert "\n" not in message


FUNCTIONAL = """
def build(input_shape, num_classes):
    inputs = keras.Input(input_shape)
    return keras.Model(inputs, layers.Dense(num_classes)(layers.Flatten()(inputs)))
"""
SEQUENTIAL = """
def build(num_classes):
    return keras.Sequential([layers.Flatten(), layers.Dense(num_classes)])
"""
SUBCLASSED = """
import tensorflow as tf
class build(keras.Model):
    def __init__(self, num_classes):
        super().__init__()
        self.dense = layers.Dense(num_classes)
    def call(self, images):
        return self.dense(tf.reshape(images, [tf.shape(images)[0], -1]))
"""


@pytest.mark.parametrize("text", [FUNCTIONAL, SEQUENTIAL, SUBCLASSED], ids=["functional", "sequential", "subclassed"])
def test_own_models_of_every_kind_are_built(tmp_path, text):
    """Functional, Sequential without input and subclassed models come back with their weights."""
    model = own(tmp_path, text)
    assert [tuple(v.shape) for v in model.trainable_variables] == [(64, 10), (10,)]


def test_own_models_may_ask_for_more(tmp_path):
    """What the caller offers besides the shapes is given by name."""
    model = own(
        tmp_path,
        "def build(width, num_classes):\n"
        "    return keras.Sequential([layers.Flatten(), layers.Dense(width), layers.Dense(num_classes)])\n",
        width=7,
    )
    assert model.layers[1].units == 7


@pytest.mark.parametrize(
    ("layer", "logits"),
    [
        ("layers.Dense(num_classes)", True),
        ("layers.Dense(num_classes, kernel_initializer='zeros')", True),
        ("layers.Dense(num_classes, activation='sigmoid')", True),
        ("layers.Dense(num_classes, activation='softmax')", False),
        ("layers.Dense(num_classes), layers.Softmax()", False),
        ("layers.Dense(num_classes), layers.Activation('softmax', dtype='float16')", False),
        ("keras.Sequential([layers.Dense(num_classes), layers.Softmax()])", False),
        ("layers.Dense(num_classes), layers.Lambda(keras.ops.softmax)", False),
    ],
)
def test_a_final_softmax_is_recognised(tmp_path, layer, logits):
    """However a softmax is written, its outputs are taken for probabilities."""
    model = own(tmp_path, f"def build(num_classes): return keras.Sequential([layers.Flatten(), {layer}])\n")
    assert models.gives_logits(model, input_shape=SHAPE) is logits


def test_a_softmax_inside_a_subclassed_model_is_recognised(tmp_path):
    """A subclassed model has no layers to look at, and is told by its outputs."""
    model = own(tmp_path, SUBCLASSED.replace("Dense(num_classes)", "Dense(num_classes, activation='softmax')"))
    assert not models.gives_logits(model, input_shape=SHAPE)


def test_something_else_than_a_model_is_refused(tmp_path):
    """The type that came back is named."""
    assert message_of(tmp_path, "def build(): return layers.Dense(3)\n", name="a.py") == (
        "--model a.py:build returned keras.src.layers.core.dense.Dense; "
        f"it must return a keras.Model of Keras {keras.__version__}"
    )
    assert message_of(tmp_path, "def build(): pass\n", name="b.py") == (
        f"--model b.py:build returned None; it must return a keras.Model of Keras {keras.__version__}"
    )


@pytest.mark.parametrize(
    ("end", "received"),
    [
        ("layers.Dense(7)(layers.Flatten()(x))", "shape (batch, 7)"),
        ("layers.Dense(10)(x)", "shape (batch, 8, 8, 10)"),
        ("[layers.Dense(10)(layers.Flatten()(x)), x]", "list"),
    ],
)
def test_a_wrong_output_is_refused(tmp_path, end, received):
    """The output must be one row of one value for each class."""
    text = f"def build(input_shape):\n    x = keras.Input(input_shape)\n    return keras.Model(x, {end})\n"
    assert message_of(tmp_path, text) == (
        f"--model net.py:build: for rows of shape (8, 8, 1) the model's output is {received}; it must be (batch, 10)"
    )


def test_a_model_that_cannot_take_the_images_is_refused(tmp_path):
    """Keras's page about shapes becomes one line."""
    message = message_of(tmp_path, "def build(): return keras.Sequential([keras.Input((3,)), layers.Dense(10)])\n")
    assert message.startswith(
        "--model net.py:build: the model cannot take float32 rows of shape (batch, 8, 8, 1): ValueError: "
    )
    assert "\n" not in message


def test_a_model_without_weights_is_refused(tmp_path):
    """There must be something to train."""
    text = "def build(num_classes): return keras.Sequential([layers.Flatten(), layers.Lambda(lambda x: x[:, :10])])\n"
    assert message_of(tmp_path, text) == (
        "--model net.py:build: the model has no trainable weights; there is nothing to train"
    )


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("cmn", "did you mean cnn?"),
        ("resnet", "the models are cnn, mlp and your own FILE.py:FUNCTION"),
        ("net:build", "the models are cnn, mlp and your own FILE.py:FUNCTION"),
    ],
)
def test_an_unknown_name_gets_a_hint(spec, hint):
    """The nearest name, or all of them, is said."""
    with pytest.raises(UsageError) as raised:
        models.check(spec)
    assert str(raised.value) == f"there is no model {spec!r}; {hint}"


def test_checking_needs_no_keras(tmp_path):
    """Bad words fail before anything heavy is imported."""
    (tmp_path / "net.py").write_text("def build(): ...\n")
    code = (
        "import sys\nfrom trainbox import models\nmodels.check('cnn')\nmodels.check('net.py:build')\n"
        "print(models.source('mlp'), models.source('net.py:build')[1])\n"
        "assert not {'keras', 'tensorflow', 'numpy'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["None", hashlib.sha256(b"def build(): ...\n").hexdigest()]
