"""The command line: exit codes, streams and one line an error, whatever the words."""

import contextlib
import errno
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainbox import __version__
from trainbox.cli import app, program, session
from trainbox.config import RunConfig, options
from trainbox.errors import DataError, DevicesError, DivergedError, InterruptedRunError, RunFailedError, UsageError

COMMAND = [sys.executable, "-m", "trainbox"]


@pytest.fixture(autouse=True)
def clean_place(tmp_path, monkeypatch):
    """An empty working folder, no words in the environment, and this process's own signal handlers afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TRAINBOX_", "TFDS_", "SLURM_"))]:
        monkeypatch.delenv(name)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def cli(capsys):
    """Run trainbox in this process: exit code, standard output, standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        code = app.main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def trainbox(*words: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, **more)


def python(code: str, *words: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, **more)


USAGE = [
    (["train", "--epochs", "-1"], "--epochs is -1; it must be a whole number, at least 1"),
    (["train", "--epochs=0"], "--epochs is 0; it must be a whole number, at least 1"),
    (["train", "--epochs", "x"], "--epochs is 'x'; it must be a whole number, at least 1"),
    (["train", "--batch-size", "atuo"], "--batch-size is 'atuo'; it must be a whole number, at least 1, or auto"),
    (["train", "--epochs", ""], "--epochs is empty; it must be a whole number, at least 1"),
    (["train", "--learning-rate", "nan"], "--learning-rate is nan; it must be a number, at least 0"),
    (["train", "--momentum", "1"], "--momentum is 1.0; it must be a number, at least 0 and below 1"),
    (
        ["train", "--precision", "float8"],
        "--precision is 'float8'; it must be one of float32, bfloat16, float16; did you mean float32?",
    ),
    (
        ["train", "--gpus", "0,1"],
        "--gpus is '0,1'; it must be a whole number, from 1 to 1024: how many; --devices names which",
    ),
    (["train", "--run", ""], "--run is empty; it must be a text"),
    (["train", "--epoch", "2"], "no such option: --epoch; did you mean --epochs? (see trainbox train --help)"),
    (["train", "--zzz"], "no such option: --zzz (see trainbox train --help)"),
    (["train", "-x"], "no such option: -x (see trainbox train --help)"),
    (["train", "--epochs"], "option '--epochs' requires an argument (see trainbox --help)"),
    (
        ["train", "--tensorboard", "false"],
        "got unexpected extra argument(s) (false); a value follows its option, and a switch such as --offline or "
        "--no-offline takes none (see trainbox train --help)",
    ),
    (["train", "--tensorboard=false"], "option '--tensorboard' does not take a value (see trainbox --help)"),
    (["trian"], "no such command: 'trian'; did you mean train? (see trainbox --help)"),
    (
        ["--epochs", "3"],
        "no such option: --epochs; options of a command follow its name, as in trainbox train --epochs 3 "
        "(see trainbox --help)",
    ),
    (["--debug"], "missing command (see trainbox --help)"),
    (["evaluate"], "missing argument 'RUN' (see trainbox evaluate --help)"),
    (["evaluate", "first"], "no run 'first' in output; it has no runs yet"),
    (["export", "first", "--json"], "no run 'first' in output; it has no runs yet"),
    (["train", "--config", "nope.toml"], "cannot read nope.toml: No such file or directory"),
    (["config", "--logical-devices", "2"], "--logical-devices needs --device cpu"),
]


@pytest.mark.parametrize(("words", "message"), USAGE)
def test_wrong_words_are_one_line_and_code_2(words, message, cli):
    """On standard error, before anything heavy is imported; standard output stays empty."""
    code, out, err = cli(*words)
    if words != ["--debug"]:
        assert err == f"trainbox: {message}\n"
    assert err.splitlines()[-1] == f"trainbox: {message}"
    assert (code, out) == (2, "")


def test_no_command_shows_the_help_on_standard_error(cli):
    """A script that forgot the command gets a failure, a reader the commands."""
    code, out, err = cli()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: trainbox [OPTIONS] COMMAND")
    assert err.endswith("trainbox: missing command (see trainbox --help)\n")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["train", "--help"], ["train", "--epochs", "3", "--help"]])
def test_help_is_on_standard_output(words, cli):
    """Nothing of it is an error."""
    code, out, err = cli(*words)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: trainbox ")


@pytest.mark.parametrize("command", program.COMMANDS)
def test_the_list_of_commands_says_what_their_own_help_says(command, cli):
    """It is kept apart, so that listing the commands need not import them."""
    _, out, _ = cli("--help")
    assert program.COMMANDS[command] in " ".join(out.split())
    module = importlib.import_module(f"trainbox.cli.{command}")
    assert getattr(module, command).__doc__.splitlines()[0] == program.COMMANDS[command]


def test_the_version_is_told(cli):
    """One line."""
    assert cli("--version") == (0, f"trainbox {__version__}\n", "")


def test_the_help_of_train_has_every_option_with_its_default_in_its_panel(cli):
    """It is made from the declaration."""
    _, out, _ = cli("train", "--help")
    for name, option in options().items():
        assert f"--{name.replace('_', '-')} " in out
        assert f"\n{option.panel}:\n" in out
    said = " ".join(out.split())
    assert f"--epochs N Passes over the training rows. [default: {RunConfig().epochs}; at least 1]" in said
    assert "--momentum X Momentum of sgd and rmsprop. [default: 0; at least 0 and below 1]" in said
    assert "--tensorboard / --no-tensorboard Write TensorBoard events too. [default: on]" in said
    assert "--devices LIST " in said
    assert "--precision float32|bfloat16|float16 " in said


def test_config_shows_values_and_sources(cli, tmp_path):
    """As JSON: what train would write into config.json."""
    (tmp_path / "run.toml").write_text("keep = 5\n")
    (tmp_path / ".env").write_text("TRAINBOX_SEED=9\n")
    words = ["--config", "run.toml", "--no-tensorboard", "--devices", "0", "--devices", "2", "--epochs", "3"]
    code, out, err = cli("config", *words, "--json")
    record = json.loads(out)
    given = {name: source for name, source in record["sources"].items() if source != "default"}
    assert given == {
        "epochs": "flag --epochs",
        "seed": ".env TRAINBOX_SEED",
        "devices": "flag --devices",
        "keep": "config run.toml",
        "tensorboard": "flag --no-tensorboard",
    }
    assert [record["values"][name] for name in given] == [9 if n == "seed" else record["values"][n] for n in given]
    assert (record["values"]["devices"], record["values"]["seed"]) == ("0,2", 9)
    assert (code, err) == (0, "")


def test_config_is_readable_without_json(cli):
    """One line an option, nothing that moves a cursor."""
    _, out, _ = cli("config", "--run", "a\x1b[31mb")
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines()}
    assert list(rows) == list(options())
    assert (rows["run"], rows["tensorboard"], rows["shards"]) == (r"a\x1b[31mb", "true", "-")


def test_a_bad_variable_is_named(cli, monkeypatch):
    """Not the flag, which was not given."""
    monkeypatch.setenv("TRAINBOX_EPOCHS", "abc")
    assert cli("train") == (
        2,
        "",
        "trainbox: environment TRAINBOX_EPOCHS is 'abc'; it must be a whole number, at least 1\n",
    )


def raising(error: BaseException):
    def work() -> int:
        raise error

    return work


ENDS = [
    (RunFailedError("disk full"), 1, "trainbox: disk full\n"),
    (UsageError("no"), 2, "trainbox: no\n"),
    (DevicesError("no GPU"), 3, "trainbox: no GPU\n"),
    (DataError("no data"), 4, "trainbox: no data\n"),
    (DivergedError("NaN"), 5, "trainbox: NaN\n"),
    (InterruptedRunError("saved", signum=15), 143, "trainbox: saved\n"),
    (InterruptedRunError("saved", signum=10), 138, "trainbox: saved\n"),
    (KeyboardInterrupt(), 130, "trainbox: interrupted\n"),
    (ValueError("a\n\nb\x1b[31m"), 1, "trainbox: unexpected ValueError: a b\\x1b[31m; --debug shows where\n"),
    (MemoryError(), 1, "trainbox: unexpected MemoryError; --debug shows where\n"),
    (BrokenPipeError(errno.EPIPE, "x"), 1, "trainbox: unexpected BrokenPipeError: [Errno 32] x; --debug shows where\n"),
    (RuntimeError("x" * 5000), 1, f"trainbox: unexpected RuntimeError: {'x' * 574}…; --debug shows where\n"),
    (SystemExit(7), 7, ""),
    (SystemExit(), 0, ""),
    (SystemExit("stop"), 1, "trainbox: stop\n"),
]


@pytest.mark.parametrize(("error", "code", "message"), ENDS)
def test_every_end_has_its_code_and_one_line(error, code, message, capsys):
    """Nothing but that line, no traceback, and nothing on standard output."""
    assert app.guarded(raising(error), debug=False) == code
    assert tuple(capsys.readouterr()) == ("", message)


@pytest.mark.parametrize("error", [UsageError("no"), ValueError("no")])
def test_debug_shows_the_traceback_above_the_line(error, capsys):
    """It ends in the same line."""
    app.guarded(raising(error), debug=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] in ("trainbox: no", "trainbox: unexpected ValueError: no")


@pytest.mark.parametrize("words", [["--debug", "evaluate", "x"], ["evaluate", "x", "--debug"]])
def test_debug_is_taken_before_and_after_the_command(words, cli):
    """Whoever adds it to a failed command line adds it at the end."""
    code, _, err = cli(*words)
    assert code == 2
    assert "Traceback" in err


def test_neither_help_nor_a_usage_error_imports_anything_heavy():
    """What they need is there before TensorFlow would be."""
    code = """
import sys
from trainbox.cli.app import main
for words in (["--help"], ["--version"], ["train", "--help"], ["train", "--epochs", "-1"], ["config"]):
    main(words)
heavy = {"tensorflow", "keras", "tensorflow_datasets", "numpy", "rich"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    assert python(code).stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_are_there_at_once(word):
    """At most twice the processor time of importing Typer alone, the best of three each (0.14 s for 0.1 s)."""

    def seconds(run: Callable[[], subprocess.CompletedProcess[str]]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run().returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    alone = min(seconds(lambda: python("import typer")) for _ in range(3))
    assert min(seconds(lambda: trainbox(word)) for _ in range(3)) <= 2 * alone


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"], ["config"]])
def test_a_closed_pipe_is_the_readers_business(words):
    """`trainbox --help | head -1` ends 0 and says nothing."""
    reader, writer = os.pipe()
    os.close(reader)
    child = subprocess.run([*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (child.returncode, child.stderr) == (0, "")


def test_a_full_disk_under_the_answer_is_a_failure():
    """Whoever asked has no answer, and must know."""
    with open("/dev/full", "w") as full:
        child = subprocess.run([*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (child.returncode, child.stderr) == (1, "trainbox: cannot write the answer: No space left on device\n")


@pytest.mark.parametrize(
    ("redirection", "words", "code"),
    [
        (">&-", "--help", 0),
        ("2>&-", "trian", 2),
        ("<&- >&- 2>&-", "--help", 0),
        ("2>/dev/full", "trian", 2),
    ],
)
def test_closed_streams_change_no_exit_code(redirection, words, code):
    """A daemon may have none of them."""
    line = f'exec "$0" -m trainbox {words} {redirection}'
    child = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout, child.stderr) == (code, "", "")


def test_an_ascii_output_is_no_failure():
    """What the encoding lacks is escaped."""
    child = trainbox("config", "--dataset", "größe", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (child.returncode, child.stderr) == (0, "")
    assert child.stdout.startswith("dataset                 gr\\xf6\\xdfe")


WAIT = """
import sys, time
from trainbox.cli import app
app.answer_signals()
def work():
    try:
        print("up", flush=True)
        time.sleep(60)
    finally:
        print("cleaned", flush=True)
        if len(sys.argv) > 1:
            time.sleep(60)
sys.exit(app.guarded(work, debug=False))
"""


@pytest.mark.parametrize(
    ("number", "code", "err"),
    [
        (signal.SIGTERM, 143, "trainbox: ended by SIGTERM\n"),
        (signal.SIGUSR1, 138, "trainbox: ended by SIGUSR1\n"),
        (signal.SIGINT, 130, "trainbox: interrupted\n"),
    ],
)
def test_a_signal_before_the_run_is_set_up_ends_it(number, code, err):
    """With its code, after the clean-up, and without a traceback; Slurm's second signal changes nothing."""
    with started([sys.executable, "-c", WAIT]) as child:
        child.send_signal(number)
        if number != signal.SIGINT:
            child.send_signal(number)
        assert child.communicate(timeout=10) == ("cleaned\n", err)
    assert child.returncode == code


def test_a_clean_up_that_hangs_does_not_outlive_the_signal():
    """The process ends after the time that a second signal would have to wait."""
    with started([sys.executable, "-c", WAIT, "hang"]) as child:
        child.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert child.wait(timeout=10) == 143
        assert time.monotonic() - began >= 0.9 * app.GRACE_SECONDS


@pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("unshare"), reason="a process becomes PID 1 only with root's unshare"
)
def test_the_first_process_of_a_container_ends_on_sigterm():
    """As PID 1 it would ignore every signal that it has no handler for."""
    with started(["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", WAIT]) as child:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert child.communicate(timeout=10) == ("cleaned\n", "trainbox: ended by SIGTERM\n")
    assert child.returncode == 143


@contextlib.contextmanager
def started(command):
    """A child that has said that it is up; it never outlives the test."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "up\n"
            yield child
        finally:
            child.kill()


REPORT = """
import ctypes, os, sys
from trainbox.cli import session
def work(display):
    display.line("evaluating")
    print("a user's own print")
    os.write(1, b"a library's own write\\n")
    ctypes.CDLL(None).puts(b"a C library's own line")
    return {"test/loss": float("nan"), "test/accuracy": 0.5, "rows": (1, 2)}
session.report(work, session.settle({}), json=len(sys.argv) > 1)
"""


def test_standard_output_of_json_is_json_alone():
    """Whatever a model file or a library prints goes to standard error; JSON has no NaN."""
    child = python(REPORT, "json")
    assert child.stdout == '{"test/loss": null, "test/accuracy": 0.5, "rows": [1, 2]}\n'
    assert {"evaluating", "a user's own print", "a library's own write"} <= set(child.stderr.splitlines())


def test_without_json_the_display_is_on_standard_output():
    """And nothing is turned away from it."""
    child = python(REPORT)
    assert {"evaluating", "a user's own print", "a library's own write"} <= set(child.stdout.splitlines())
    assert child.stderr == ""


def test_dotenv_is_in_the_environment_after_the_words_are_settled(tmp_path, monkeypatch):
    """So TensorFlow, imported later, sees it; what was set already is not changed."""
    (tmp_path / ".env").write_text("CUDA_VISIBLE_DEVICES=1\nTF_SOMETHING=2\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("TF_SOMETHING", "")
    monkeypatch.delenv("TF_SOMETHING")
    session.settle({})
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["TF_SOMETHING"]) == ("0", "2")
