"""Random changes of images, to the pixel."""

import numpy as np
import pytest
import tensorflow as tf

from trainbox import augment, changes
from trainbox.errors import UsageError

ALL = "flip,flip-vertical,crop:2,crop:3:zeros,rotate:30,colour:0.4"


def images(*shape):
    return np.random.default_rng(3).random(shape).astype(np.float32)


def numbers(*shape):
    return np.random.default_rng(4).random(shape).astype(np.float32)


def test_a_flip_mirrors_those_below_one_half_and_undoes_itself():
    """Left and right, and up and down; twice is not at all."""
    given = images(3, 4, 5, 2)
    drawn = np.float32([0.499, 0.5, 0.0])
    for axis in (2, 1):
        once = augment.flipped(given, drawn, axis=axis).numpy()
        assert (once[1] == given[1]).all()
        for row in (0, 2):
            assert (once[row] == np.flip(given[row], axis - 1)).all()
        assert (augment.flipped(once, drawn, axis=axis).numpy() == given).all()


@pytest.mark.parametrize("zeros", [False, True])
def test_a_crop_is_a_part_of_the_image_with_its_border(zeros):
    """Every place where it can begin, compared with NumPy's padding; both ends are reached."""
    border, given = 3, images(1, 6, 5, 2)
    mode = {"mode": "constant"} if zeros else {"mode": "reflect"}
    padded = np.pad(given[0], ((border, border), (border, border), (0, 0)), **mode)
    places = 2 * border + 1
    for top in range(places):
        for left in range(places):
            drawn = [np.float32([(place + 0.5) / places]) for place in (top, left)]
            part = augment.cropped(given, *drawn, border=border, zeros=zeros).numpy()[0]
            assert (part == padded[top : top + 6, left : left + 5]).all(), (top, left)


@pytest.mark.parametrize("border", [1, 2, 100, 2**15])
def test_a_crop_never_begins_beyond_the_border(border):
    """The largest number below 1 is the last place: its product with an odd number is not rounded up to it."""
    given = np.zeros((1, border + 2, 1, 1), np.float32)
    given[:, -1] = 1.0
    last = np.float32([1 - 2**-24])
    part = augment.cropped(given, last, np.float32([0.5]), border=border, zeros=True).numpy()[0, :, 0, 0]
    assert np.flatnonzero(part).tolist() == [1]


def test_a_turn_by_nothing_changes_no_bit():
    """Also where images are not square, and at 180 degrees of which half is drawn."""
    given = images(4, 6, 9, 3)
    assert (augment.rotated(given, numbers(4), degrees=0.0).numpy() == given).all()
    assert (augment.rotated(given, np.float32([0.5] * 4), degrees=180.0).numpy() == given).all()


def test_a_turn_by_a_quarter_is_that_of_numpy_and_black_lies_outside():
    """Against the clock from half of the range on; the corners of a turn by 45 degrees are empty."""
    given = images(1, 5, 5, 1)
    assert augment.rotated(given, np.float32([1.0]), degrees=90.0).numpy()[0] == pytest.approx(
        np.rot90(given[0]), abs=1e-6
    )
    assert augment.rotated(given, np.float32([0.0]), degrees=90.0).numpy()[0] == pytest.approx(
        np.rot90(given[0], -1), abs=1e-6
    )
    turned = augment.rotated(np.ones((1, 9, 9, 1), np.float32), np.float32([1.0]), degrees=45.0).numpy()[0, :, :, 0]
    assert [turned[0, 0], turned[0, 8], turned[8, 0], turned[8, 8]] == [0.0] * 4
    assert turned[4].tolist() == [1.0] * 9


def test_colours_change_by_their_factors():
    """Brightness, contrast about the mean of the image, saturation about the brightness of each pixel."""
    given = images(2, 3, 4, 3) * 0.5
    drawn = np.float32([[1.0, 0.0], [0.0, 0.75], [0.25, 0.5]])
    wanted, factors = [], 1 + 0.4 * (2 * drawn.T - 1)
    for image, (brightness, contrast, saturation) in zip(given.astype(np.float64), factors, strict=True):
        image = np.clip(image * brightness, 0, 1)
        image = np.clip(image.mean() + (image - image.mean()) * contrast, 0, 1)
        grey = image @ np.array([0.299, 0.587, 0.114])
        wanted.append(np.clip(grey[..., None] + (image - grey[..., None]) * saturation, 0, 1))
    found = augment.coloured(given, *drawn, strength=0.4).numpy()
    assert found == pytest.approx(np.array(wanted), abs=1e-5)
    assert augment.coloured(given, *drawn, strength=0.0).numpy() == pytest.approx(given, abs=1e-5)


def test_one_channel_has_no_saturation_and_values_stay_within():
    """Whatever is drawn, from 0 to 1."""
    given = images(64, 4, 4, 1)
    found = augment.coloured(given, *numbers(3, 64), strength=1.0).numpy()
    assert (found.min(), found.max()) == (0.0, 1.0)
    other = augment.coloured(given, *numbers(3, 64)[:2], np.zeros(64, np.float32), strength=1.0).numpy()
    assert (found == other).all()


def test_what_becomes_of_an_image_does_not_depend_on_its_neighbours():
    """The first of 33 images alone, two of them, and so on have the same bits; so it is in a graph."""
    made, given = changes.parse(ALL), images(33, 11, 9, 3)
    drawn = numbers(33, augment.numbers_needed(made))
    assert drawn.shape[1] == 10
    whole = augment.changed(given, drawn, made).numpy()
    for count in (*range(1, 18), 32):
        assert (augment.changed(given[:count], drawn[:count], made).numpy() == whole[:count]).all(), count
    graph = tf.function(lambda rows, drawn: augment.changed(rows, drawn, made), autograph=False)
    assert (graph(given, drawn).numpy() == whole).all()


def test_a_border_as_large_as_the_image_is_refused():
    """Its reflection would have nothing to show."""
    augment.refuse(changes.parse("crop:7"), input_shape=(8, 9, 1))
    with pytest.raises(UsageError) as refused:
        augment.refuse(changes.parse("flip,crop:8:zeros"), input_shape=(8, 9, 1))
    assert str(refused.value) == "--augment crop:8 is too far for images of 8×9; give at most crop:7"
