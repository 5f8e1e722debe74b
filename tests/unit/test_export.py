"""Exports: a SavedModel that plain TensorFlow serves on one device with the same numbers, and a `.keras` file."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainbox import export, models
from trainbox.errors import RunFailedError, UsageError
from trainbox.normalisation import Normalisation

SHAPE = (8, 8, 1)

TRAIN_AND_EXPORT = """
import sys
from pathlib import Path
import keras, numpy as np, tensorflow as tf
from trainbox import export, models, optimizers
from trainbox.config import RunConfig

folder = Path(sys.argv[1])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
images = np.random.default_rng(0).random((32, 8, 8, 1), np.float32)
np.save(folder / "images.npy", images)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = models.build("cnn", input_shape=(8, 8, 1), num_classes=10)
    model.compile(
        optimizers.build(RunConfig(warmup_epochs=1), steps_per_epoch=4, total_steps=48),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
model.fit(images, np.arange(32) % 10, batch_size=8, verbose=0)
export.export(model, directory=folder, input_shape=(8, 8, 1), gives_logits=True)
for n in (1, 5, 17):
    np.save(folder / f"{n}.npy", tf.nn.softmax(model(images[:n], training=False)))
"""

SERVE = """
import sys
import numpy as np, tensorflow as tf

folder = sys.argv[1]
images = np.load(f"{folder}/images.npy")
served = tf.saved_model.load(f"{folder}/saved_model")
assert "trainbox" not in sys.modules
for n in (1, 5, 17):
    for endpoint in (served.serve, served.signatures["serving_default"]):
        difference = endpoint(images=images[:n])["probabilities"] - np.load(f"{folder}/{n}.npy")
        print(difference.shape, float(np.abs(difference).max()))
"""


@pytest.fixture
def model():
    return models.build("cnn", input_shape=SHAPE, num_classes=10)


def run(script, folder):
    return subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True).stdout


def probabilities(saved_model, images):
    served = tf.saved_model.load(saved_model)
    return served.serve(images)["probabilities"].numpy()


def test_a_mirrored_model_is_served_on_one_device(tmp_path):
    """Trained on two replicas, loaded by plain TensorFlow in a fresh process: no difference at any batch size."""
    run(TRAIN_AND_EXPORT, tmp_path)
    lines = run(SERVE, tmp_path).splitlines()
    assert lines == [f"({n}, 10) 0.0" for n in (1, 1, 5, 5, 17, 17)]
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert not loaded.compiled
    outputs = tf.nn.softmax(loaded(np.load(tmp_path / "images.npy")[:5]))
    assert np.array_equal(outputs, np.load(tmp_path / "5.npy"))
    assert not list(tmp_path.glob(".*"))


def test_probabilities_are_served_as_they_are(tmp_path, model):
    """A model that ends in a softmax gets no second one."""
    images = np.random.default_rng(0).random((3, *SHAPE), np.float32)
    softmax = keras.Sequential([model, keras.layers.Softmax()])
    export.export(softmax, directory=tmp_path, input_shape=SHAPE, gives_logits=False)
    assert np.array_equal(probabilities(tmp_path / "saved_model", images), softmax(images))


def test_an_export_replaces_the_earlier_one(tmp_path, model):
    """The second export wins, whatever was left of the first or of one that was killed."""
    (tmp_path / ".partial.saved_model").mkdir()
    (tmp_path / ".replaced.saved_model").mkdir()
    for value in (1.0, 0.0):
        model.set_weights([np.full(w.shape, value) for w in model.get_weights()])
        done = export.export(model, directory=tmp_path, input_shape=SHAPE, gives_logits=True)
    images = np.ones((1, *SHAPE), np.float32)
    assert np.array_equal(probabilities(done.saved_model, images), np.full((1, 10), np.float32(0.1)))
    assert not keras.saving.load_model(done.keras).get_weights()[0].any()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.keras", "saved_model"]


def test_the_optimizer_is_not_in_the_file(tmp_path, model):
    """A compiled model is saved without its training state, and is compiled afterwards."""
    model.compile("adam", "sparse_categorical_crossentropy")
    model.optimizer.build(model.trainable_variables)
    assert export.save_for_keras(model, tmp_path / "model.keras") is None
    assert not json.loads(zipfile.ZipFile(tmp_path / "model.keras").read("config.json"))["compile_config"]
    assert (tmp_path / "model.keras").stat().st_size < 2 * 4 * model.count_params()
    assert model.compiled
    assert isinstance(model.optimizer, keras.optimizers.Adam)


class Subclassed(keras.Model):
    """A model that Keras cannot describe: it has no get_config."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def call(self, images):
        return self.dense(tf.reshape(images, [tf.shape(images)[0], -1]))


def test_a_model_without_a_description_is_served_all_the_same(tmp_path):
    """A subclassed model without get_config gives a SavedModel and one line instead of a .keras file."""
    images = np.ones((2, *SHAPE), np.float32)
    model = Subclassed(keras.layers.Dense(10))
    outputs = tf.nn.softmax(model(images))
    done = export.export(model, directory=tmp_path, input_shape=SHAPE, gives_logits=True)
    assert np.array_equal(probabilities(done.saved_model, images), outputs)
    assert done.keras is None
    assert done.notice == "no model.keras: Subclassed, or a layer of it, has no get_config()"
    assert [p.name for p in tmp_path.iterdir()] == ["saved_model"]


class Undescribed(keras.layers.Dense):
    """A layer whose description fails."""

    def get_config(self):
        raise ValueError("no\nconfig")


def test_another_failure_to_describe_is_told(tmp_path):
    """Whatever Keras raises becomes the one line."""
    model = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), Undescribed(10)])
    notice = export.save_for_keras(model, tmp_path / "model.keras")
    assert notice == "no model.keras: Keras cannot describe the model (ValueError: no config)"


class FixedBatch(Subclassed):
    """A model that only works for a batch whose size is known in advance."""

    def call(self, images):
        return self.dense(tf.reshape(images, [images.shape[0], 64]))


def test_a_model_for_one_batch_size_cannot_be_served(tmp_path):
    """The batch dimension must be free."""
    model = FixedBatch(keras.layers.Dense(10))
    model(np.ones((2, *SHAPE), np.float32))
    with pytest.raises(UsageError) as raised:
        export.export(model, directory=tmp_path, input_shape=SHAPE, gives_logits=True)
    assert str(raised.value).startswith("the model cannot be exported for batches of any size: ")
    assert "\n" not in str(raised.value)


def test_a_folder_that_cannot_be_made(tmp_path, model):
    """A file in the way is a failed run, in one line."""
    (tmp_path / "file").touch()
    with pytest.raises(RunFailedError) as raised:
        export.export(model, directory=tmp_path / "file", input_shape=SHAPE, gives_logits=True)
    assert str(raised.value) == (
        f"{tmp_path}/file/saved_model could not be written (File exists); nothing was replaced"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_folder_without_rights(model):
    """No permission to write is a wrong word, not a failed run."""
    target = Path("/no-such-folder/model.keras")
    os.seteuid(65534)
    try:
        with pytest.raises(UsageError) as raised:
            export.save_for_keras(model, target)
    finally:
        os.seteuid(0)
    assert str(raised.value) == f"{target} cannot be written (Permission denied); choose a writable folder"


def test_what_normalises_the_inputs_is_a_part_of_both_files(model, tmp_path):
    """They take images as they were: the same numbers as the model gives for normalised ones."""
    images = np.random.default_rng(0).random((5, *SHAPE), np.float32)
    normalisation = Normalisation(input_shape=SHAPE, mean=(0.3,), variance=(0.05,))
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    wanted = model(normalisation(images), training=False)
    assert not np.allclose(wanted, model(images, training=False))
    done = export.export(
        model, directory=tmp_path, input_shape=SHAPE, gives_logits=True, normalisation=normalisation
    )  # fmt: skip
    assert done.notice is None
    assert probabilities(done.saved_model, images) == pytest.approx(tf.nn.softmax(wanted).numpy(), abs=1e-6)
    loaded = keras.saving.load_model(done.keras)
    assert not loaded.compiled
    assert (loaded(images).numpy() == wanted.numpy()).all()
    assert model.compiled
