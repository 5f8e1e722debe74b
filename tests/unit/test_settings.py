"""Words become settings: flag, else environment, else `.env`, else a TOML file, else default."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from trainbox import settings, sources
from trainbox.config import RunConfig, options
from trainbox.errors import UsageError


def settle(flags=None, *, environ=None, dotenv=None, config_file=None, **more):
    return settings.resolve(flags or {}, environ=environ or {}, dotenv=dotenv, config_file=config_file, **more)


def file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def refusal(*args, **kwargs) -> str:
    with pytest.raises(UsageError) as error:
        settle(*args, **kwargs)
    return str(error.value)


def test_without_words_all_is_default():
    """Nothing given is the declared configuration, and says so of every option."""
    found = settle()
    assert found.config == RunConfig()
    assert found.sources == dict.fromkeys(options(), "default")
    assert found.notices == ()


def test_the_strongest_source_wins(tmp_path):
    """One option after the other, each taken from the next weaker source."""
    toml = file(tmp_path / "run.toml", "epochs = 2\nseed = 2\nkeep = 2\nshards = 2\n")
    dotenv = file(tmp_path / ".env", "TRAINBOX_EPOCHS=3\nTRAINBOX_SEED=3\nTRAINBOX_KEEP=3\n")
    environ = {"TRAINBOX_EPOCHS": "4", "TRAINBOX_SEED": "4"}
    found = settle({"epochs": 5, "seed": None}, environ=environ, dotenv=dotenv, config_file=toml)
    config = found.config
    assert (config.epochs, config.seed, config.keep, config.shards, config.log_steps) == (5, 4, 3, 2, 100)
    assert [found.sources[name] for name in ("epochs", "seed", "keep", "shards", "log_steps")] == [
        "flag --epochs",
        "environment TRAINBOX_SEED",
        ".env TRAINBOX_KEEP",
        f"config {toml}",
        "default",
    ]


def test_a_switch_turned_off_names_its_flag():
    """False is given, None is not."""
    found = settle({"tensorboard": False, "offline": None})
    assert (found.config.tensorboard, found.sources["tensorboard"]) == (False, "flag --no-tensorboard")
    assert found.sources["offline"] == "default"


@pytest.mark.parametrize("value", ['"mnist"', "'mnist'", " mnist ", "mnist\r", '"mnist"\r'])
def test_quotes_blanks_and_carriage_returns_of_a_variable_are_no_part_of_it(value):
    """`docker run --env-file` keeps what compose and shells strip."""
    assert settle(environ={"TRAINBOX_DATASET": value}).config.dataset == "mnist"


@pytest.mark.parametrize("value", ["", " ", "\r", '""'])
def test_an_empty_variable_is_not_given(value, tmp_path):
    """Compose passes on variables that are not set as empty ones."""
    toml = file(tmp_path / "run.toml", "seed = 2\n")
    found = settle(environ={"TRAINBOX_EPOCHS": value, "TRAINBOX_SEED": value}, config_file=toml)
    assert (found.config.epochs, found.config.seed) == (RunConfig().epochs, 2)


def test_a_bad_variable_is_named():
    """The message points to the variable, not to the flag."""
    assert refusal(environ={"TRAINBOX_EPOCHS": "abc"}) == (
        "environment TRAINBOX_EPOCHS is 'abc'; it must be a whole number, at least 1"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TRAINBOX_EPOCH", "TRAINBOX_EPOCHS"),
        ("TRAINBOX_BATCHSIZE", "TRAINBOX_BATCH_SIZE"),
        ("TRAINBOX_BATCH", "TRAINBOX_BATCH_SIZE"),
        ("TRAINBOX_LERNING_RATE", "TRAINBOX_LEARNING_RATE"),
        ("TRAINBOX_OUTPUT", "TRAINBOX_OUTPUT_DIR"),
    ],
)
def test_a_misspelt_variable_is_refused(name, meant):
    """A typo must not train with the default in silence."""
    assert refusal(environ={name: "1"}) == f"environment {name} is no option of trainbox; did you mean {meant}?"


def test_an_unknown_variable_that_resembles_nothing_gives_a_notice():
    """It may be somebody else's, so it does not stop the run."""
    assert settle(environ={"TRAINBOX_NUM_EPOCHS": "1"}).notices == (
        "environment TRAINBOX_NUM_EPOCHS is no option of trainbox and is ignored",
    )


@pytest.mark.parametrize(
    "name",
    [
        "TRAINBOX_RUNTIME",
        "TRAINBOX_IMAGE",
        "TRAINBOX_IMAGE_DIGEST",
        "TRAINBOX_REQUIRE",
        "TRAINBOX_VARIANT",
        "TRAINBOX_GPU_IMAGE",
        "TRAINBOX_REVISION",
        "TRAINBOX_SERVICE_HOST",
        "TRAINBOX_PORT_6006_TCP_ADDR",
        "TRAINBOXES_EPOCH",
    ],
)
def test_variables_of_the_launcher_and_of_kubernetes_are_left_alone(name):
    """They are no options and no mistakes."""
    assert settle(environ={name: "x"}).notices == ()


def test_the_folder_of_tfds_is_honoured_below_our_own(tmp_path):
    """TFDS_DATA_DIR names the cache unless TRAINBOX_DATA_DIR does, in whichever place."""
    dotenv = file(tmp_path / ".env", "TRAINBOX_DATA_DIR=/ours\n")
    found = settle(environ={"TFDS_DATA_DIR": "/theirs"})
    assert (found.config.data_dir, found.sources["data_dir"]) == (Path("/theirs"), "environment TFDS_DATA_DIR")
    assert settle(environ={"TFDS_DATA_DIR": "/theirs"}, dotenv=dotenv).config.data_dir == Path("/ours")


def test_the_folders_of_an_image_rank_as_defaults(tmp_path):
    """Every word of the user's own beats them, a TOML file too."""
    toml = file(tmp_path / "run.toml", "output-dir = '/mine'\n")
    image = {"TRAINBOX_DEFAULT_DATA_DIR": "/data", "TRAINBOX_DEFAULT_OUTPUT_DIR": "/output"}
    found = settle(environ=image, config_file=toml)
    assert (found.config.data_dir, found.sources["data_dir"]) == (Path("/data"), "default")
    assert found.config.output_dir == Path("/mine")
    assert settle(environ={**image, "TFDS_DATA_DIR": "/theirs"}).config.data_dir == Path("/theirs")


def test_dotenv_is_read_as_written_on_any_system(tmp_path):
    """Quotes, `export`, comments, a byte order mark and Windows line ends."""
    dotenv = file(
        tmp_path / ".env",
        '\ufeff# a comment\r\nTRAINBOX_EPOCHS="7"\r\nexport CUDA_VISIBLE_DEVICES=0,1 # two\r\nEMPTY=\r\nBARE\r\n',
    )
    found = settle(dotenv=dotenv)
    assert found.config.epochs == 7
    assert found.environment == {"TRAINBOX_EPOCHS": "7", "CUDA_VISIBLE_DEVICES": "0,1", "EMPTY": ""}
    assert found.notices == ("from .env: CUDA_VISIBLE_DEVICES, EMPTY, TRAINBOX_EPOCHS",)


def test_dotenv_never_overrides_what_is_set(tmp_path):
    """An empty variable is set, too: it hides all GPUs, and a file must not show them again."""
    dotenv = file(tmp_path / ".env", "CUDA_VISIBLE_DEVICES=0\nOTHER=1\n")
    assert settle(environ={"CUDA_VISIBLE_DEVICES": ""}, dotenv=dotenv).environment == {"OTHER": "1"}


def test_the_secrets_of_dotenv_are_not_shown(tmp_path):
    """Neither a notice nor a traceback that prints the settings may have a value of the file."""
    found = settle(dotenv=file(tmp_path / ".env", "WANDB_API_KEY=hush\n"))
    assert "hush" not in repr(found)
    assert "hush" not in " ".join(found.notices)


def test_a_folder_named_dotenv_is_no_file(tmp_path):
    """It is often a virtualenv."""
    (tmp_path / ".env").mkdir()
    assert settle(dotenv=tmp_path / ".env").environment == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"A=1\nno assignment\n", "{} line 2 is not of the form NAME=value; correct or remove it"),
        (b'A="never closed\n', "{} line 1 is not of the form NAME=value; correct or remove it"),
        (b"A=\xff\n", "{} is not a UTF-8 text (byte 2); save it as UTF-8"),
        (b"A=a\0b\n", "{} has a NUL character in 'A', which no variable can hold"),
        (b"TRAINBOX_EPOCH=3\n", ".env TRAINBOX_EPOCH is no option of trainbox; did you mean TRAINBOX_EPOCHS?"),
        (b"TRAINBOX_EPOCHS=x\n", ".env TRAINBOX_EPOCHS is 'x'; it must be a whole number, at least 1"),
    ],
)
def test_a_bad_dotenv_is_refused(data, message, tmp_path):
    """The line to correct is named, and no value of it shown unless it is an option's."""
    path = tmp_path / ".env"
    path.write_bytes(data)
    assert refusal(dotenv=path) == message.format(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch = 3", "{} has the unknown key 'epoch'; did you mean epochs?"),
        ("batch_sise = 3", "{} has the unknown key 'batch_sise'; did you mean batch-size?"),
        ("zzz = 3", "{} has the unknown key 'zzz'; trainbox train --help lists all"),
        ("[training]\nepochs = 3", "{} has a table [training]; options stand at the top of the file, without tables"),
        ("epochs = '3'", "{}: epochs is '3'; it must be a whole number, at least 1"),
        ("batch-size = 0", "{}: batch-size is 0; it must be a whole number, at least 1, or auto"),
        ("batch-size = 1\nbatch_size = 1", "{} gives batch_size twice, with a dash and with an underscore; keep one"),
        ("epochs = ", "{} is not valid TOML: Invalid value (at end of document)"),
        ("epochs = 1\nepochs = 2", "{} is not valid TOML: Cannot overwrite a value (at end of document)"),
    ],
)
def test_a_bad_toml_file_is_refused(text, message, tmp_path):
    """Keys and types are held against the declaration."""
    path = file(tmp_path / "run.toml", text)
    assert refusal(config_file=path) == message.format(path)


def test_a_missing_config_file_is_refused(tmp_path):
    """A file that was asked for is not optional."""
    path = tmp_path / "nope.toml"
    assert refusal(config_file=path) == f"cannot read {path}: No such file or directory"


def test_the_config_file_may_be_named_by_a_variable(tmp_path):
    """In a container a variable is easier to give than a flag."""
    path = file(tmp_path / "run.toml", "epochs = 2")
    assert settle(environ={"TRAINBOX_CONFIG": str(path)}).config.epochs == 2


def test_only_the_wanted_fields_are_read():
    """A variable meant for training does not reach a command that has no such option."""
    found = settle(environ={"TRAINBOX_EPOCHS": "abc", "TRAINBOX_OFFLINE": "true"}, fields=("offline",))
    assert (found.config.epochs, found.config.offline) == (RunConfig().epochs, True)


def test_config_json_keeps_every_value_and_its_source(tmp_path):
    """What was written is read back the same."""
    found = settle({"epochs": 3, "data_dir": Path("/data")}, environ={"TRAINBOX_SEED": "7"})
    (tmp_path / "config.json").write_bytes(settings.dump(found))
    record = json.loads((tmp_path / "config.json").read_text())
    assert (record["values"]["epochs"], record["sources"]["epochs"]) == (3, "flag --epochs")
    assert (record["values"]["data_dir"], record["values"]["run"]) == ("/data", None)
    assert list(record["values"]) == list(record["sources"]) == list(options())
    read = settings.load(tmp_path)
    assert (read.config, read.sources) == (found.config, found.sources)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read {}: No such file or directory; a run's folder has this file"),
        ("", "{} is damaged; train into another --run, or restore the file"),
        ("[]", "{} is damaged; train into another --run, or restore the file"),
        ('{"values": 3, "sources": {}}', "{} is damaged; train into another --run, or restore the file"),
        (
            '{"values": {"colour": 1}, "sources": {}}',
            "{} has colour, unknown to this version of trainbox; use the one that wrote it",
        ),
        (
            '{"values": {"epochs": 0}, "sources": {}}',
            "{}: epochs is 0; it must be a whole number, at least 1",
        ),
    ],
)
def test_a_damaged_record_is_refused(text, message, tmp_path):
    """It is never read as defaults."""
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError) as error:
        settings.load(tmp_path)
    assert str(error.value) == message.format(path)


def test_a_later_command_has_the_devices_and_places_of_its_own():
    """The run keeps what it is; where it is looked at is a matter of the moment."""
    recorded = settle({"model": "mlp", "device": "gpu", "gpus": 8, "data_dir": Path("/data")})
    now = settle({"device": "cpu", "logical_devices": 2}, environ={"TRAINBOX_MODEL": "cnn"}, fields=("device",))
    found = settings.recall(recorded, now)
    assert (found.config.model, found.config.device, found.config.gpus) == ("mlp", "cpu", None)
    assert found.config.data_dir == Path("data")
    assert found.sources["model"] == "flag --model"


def test_a_file_whose_name_has_two_lines_is_told_in_one():
    """Found by the test below this one."""
    with pytest.raises(UsageError) as error:
        settle(environ={"TRAINBOX_CONFIG": "a\nb"})
    assert str(error.value) == "cannot read 'a\\nb': No such file or directory"


def settled_or_refused(**kwargs) -> settings.Settings | None:
    """The settings, or None where a line refused them; any other exception fails the test."""
    try:
        return settle(**kwargs)
    except UsageError as error:
        if "\n" in str(error) or not str(error):
            raise AssertionError(f"not one line: {error!r}") from error
        return None


VARIABLES = st.dictionaries(
    st.sampled_from([sources.variable(name) for name in options()] + ["TFDS_DATA_DIR", "TRAINBOX_CONFIG"]),
    st.one_of(st.text(st.characters(exclude_characters="\0")), st.integers().map(str), st.floats().map(str)),
    max_size=4,
)


@examples(deadline=None)
@given(environ=VARIABLES)
@example(environ={"TRAINBOX_EPOCHS": "9" * 5000})
@example(environ={"TRAINBOX_DATASET": "\udcff", "TRAINBOX_RUN": "a\nb"})
@example(environ={"TRAINBOX_DATA_DIR": "~" + "x" * 5000})
@example(environ={"TRAINBOX_CONFIG": "/" + "x" * 5000})
def test_no_environment_raises_anything_but_a_usage_error(environ):
    """Whatever a variable holds ends in settings or in one line."""
    found = settled_or_refused(environ=environ)
    assert found is None or settings.dump(found)


KEYS = st.one_of(st.sampled_from(list(options())), st.text(min_size=1, max_size=8))
SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=("Cs",))),
    st.dates(),
    st.lists(st.integers(), max_size=3),
)


def as_toml(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value).replace("\x7f", "\\u007f")
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)


@examples(deadline=None)
@given(table=st.dictionaries(KEYS, SCALARS, max_size=4), noise=st.text(max_size=5))
@example(table={}, noise="a=" + "[" * 5000)
@example(table={}, noise="epochs=" + "9" * 5000)
@example(table={"learning_rate": 10**400}, noise="")
def test_no_toml_file_raises_anything_but_a_usage_error(table, noise, tmp_path_factory):
    """Whatever a file holds ends in settings or in one line."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    lines = [f"{json.dumps(key)} = {as_toml(value)}\n" for key, value in table.items()]
    path.write_bytes(("".join(lines) + noise).encode(errors="replace"))
    settled_or_refused(config_file=path)


@examples(deadline=None)
@given(data=st.binary(max_size=40))
@example(data=b"A=${B}\n")
@example(data=b"\xef\xbb\xbf''=x\n")
def test_no_dotenv_raises_anything_but_a_usage_error(data, tmp_path_factory):
    """Whatever the file holds ends in variables that a process can have, or in one line."""
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_bytes(data)
    found = settled_or_refused(dotenv=path)
    for name, value in found.environment.items() if found else ():
        os.putenv(name, value)
        os.unsetenv(name)
