"""What a run says: live on a terminal, else one clean line an epoch; a broken stream never ends the run."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from trainbox.display import LiveDisplay, Outlet, PlainDisplay, Tee, epoch_line, number, open_display, printable

TERMINAL = {"TERM": "xterm-256color"}
SCALARS = {
    "train/loss": 0.51234,
    "train/accuracy": 0.875,
    "train/learning_rate": 0.001,
    "train/examples_per_second": 12345.6,
    "validation/loss": 0.25,
    "validation/accuracy": 0.9,
}


class Screen:
    """A real pseudo terminal: `stream` writes to it, `read` gives what came out at the other end."""

    def __init__(self, columns: int = 100) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def read(self) -> str:
        self.stream.flush()
        os.set_blocking(self._master, False)
        parts = []
        try:
            while part := os.read(self._master, 65536):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts).decode()

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def screen():
    opened = Screen()
    yield opened
    opened.close()


def text_file(encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def written(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode(stream.encoding)


def play(display) -> None:
    """Two epochs of four steps in blocks of two."""
    display.line("data set digits")
    display.begin(epochs=2, steps_per_epoch=4, step=0)
    for step in (2, 4, 6, 8):
        epoch = (step - 1) // 4
        display.update(epoch=epoch, step=step, scalars=SCALARS)
        if step % 4 == 0:
            display.epoch(epoch=epoch, epochs=2, seconds=1.25 * step, scalars=SCALARS)
    display.close()
    display.line("done")


LINES = [
    "data set digits",
    "epoch 1/2  loss 0.5123  accuracy 0.8750  val loss 0.2500  val accuracy 0.9000  12,346 examples/s  5.0 s",
    "epoch 2/2  loss 0.5123  accuracy 0.8750  val loss 0.2500  val accuracy 0.9000  12,346 examples/s  10.0 s",
    "done",
]


@pytest.mark.parametrize("environ", [{}, TERMINAL, {"NO_COLOR": "1"}, {"FORCE_COLOR": "0"}, {"COLUMNS": "20"}])
def test_without_a_terminal_there_is_one_clean_line_an_epoch(environ):
    """A log file has no control characters and never a line that was broken to a width."""
    stream = text_file()
    play(open_display("auto", stream=stream, environ=environ))
    assert written(stream).splitlines() == LINES


def test_every_line_is_flushed_at_once():
    """Whoever follows the log sees each line when it is said."""
    stream = text_file()
    open_display("plain", stream=stream, environ={}).line("now")
    assert stream.buffer.getvalue() == b"now\n"


def test_colours_can_be_forced_into_a_log():
    """FORCE_COLOR gives colours, and nothing that moves a cursor; NO_COLOR is stronger."""
    stream = text_file()
    open_display("auto", stream=stream, environ={"FORCE_COLOR": "1"}).epoch(
        epoch=0, epochs=2, seconds=1.0, scalars={"train/loss": 0.5}
    )
    assert written(stream) == "\x1b[1mepoch 1/2\x1b[0m  loss 0.5000  1.0 s\n"
    stream = text_file()
    play(open_display("auto", stream=stream, environ={"FORCE_COLOR": "1", "NO_COLOR": "1"}))
    assert written(stream).splitlines() == LINES


def test_an_ascii_stream_gets_ascii():
    """PYTHONIOENCODING=ascii and the C locale do not end a run."""
    stream = text_file("ascii")
    open_display("plain", stream=stream, environ={}).line("größer than 3 €")
    assert written(stream) == "gr\\xf6\\xdfer than 3 \\u20ac\n"


def test_a_live_display_shows_where_the_run_is(screen, monkeypatch):
    """Epoch, step, loss, accuracy, rate and the time left; the epochs' lines stay above."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    display = open_display("auto", stream=screen.stream, environ=TERMINAL)
    assert isinstance(display, LiveDisplay)
    display.begin(epochs=2, steps_per_epoch=4, step=0)
    display.update(epoch=0, step=2, scalars=SCALARS)
    display._progress.refresh()
    shown = plain(screen.read())
    assert "epoch 1/2  step 2/4" in shown
    assert "loss 0.5123  accuracy 0.8750" in shown
    assert "12,346/s" in shown
    assert "left" in shown
    display.epoch(epoch=0, epochs=2, seconds=5.0, scalars=SCALARS)
    assert "epoch 1/2  loss 0.5123  accuracy 0.8750  val loss 0.2500" in plain(screen.read())
    display.close()


def test_on_a_narrow_terminal_position_and_time_are_kept(monkeypatch):
    """The scalars give way."""
    monkeypatch.setenv("COLUMNS", "44")
    narrow = Screen(44)
    display = open_display("live", stream=narrow.stream, environ=TERMINAL)
    display.begin(epochs=2, steps_per_epoch=400, step=2)
    display.update(epoch=0, step=2, scalars=SCALARS)
    display._progress.refresh()
    shown = plain(narrow.read()).split("\r")[-1]
    assert shown.startswith("epoch 1/2  step 2/400")
    assert shown.endswith("left")
    assert len(shown) == 44
    display.close()
    narrow.close()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_live_display_leaves_the_terminal_as_it_was(screen):
    """The cursor is shown again, also by a second close."""
    display = open_display("live", stream=screen.stream, environ=TERMINAL)
    play(display)
    display.close()
    text = screen.read()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert plain(text).rstrip().endswith("done")


def test_a_resumed_run_begins_where_it_is(screen):
    """Step 6 of 8 is the second epoch's second."""
    display = open_display("live", stream=screen.stream, environ=TERMINAL)
    display.begin(epochs=2, steps_per_epoch=4, step=6)
    display._progress.refresh()
    assert "epoch 2/2  step 2/4" in plain(screen.read())
    display.close()


def test_a_live_display_without_colour(screen, monkeypatch):
    """NO_COLOR takes the colours and leaves the display."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    play(open_display("auto", stream=screen.stream, environ={**TERMINAL, "NO_COLOR": "1"}))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m|\x1b\[38;", screen.read())


def test_a_user_text_is_not_taken_for_markup(screen):
    """Brackets in a path or a message are shown as they are."""
    open_display("live", stream=screen.stream, environ=TERMINAL).line("[bold]net[/bold] [1/2] :smile:")
    assert plain(screen.read()).strip() == "[bold]net[/bold] [1/2] :smile:"


@pytest.mark.parametrize(
    ("progress", "environ", "kind"),
    [
        ("auto", TERMINAL, LiveDisplay),
        ("auto", {"TERM": "dumb"}, PlainDisplay),
        ("auto", {}, PlainDisplay),
        ("plain", TERMINAL, PlainDisplay),
        ("live", {"TERM": "dumb"}, LiveDisplay),
    ],
)
def test_the_display_suits_the_terminal(progress, environ, kind, screen):
    """Auto is live only where the cursor can be moved."""
    assert type(open_display(progress, stream=screen.stream, environ=environ)) is kind


def test_without_standard_output_there_is_nothing_to_say():
    """A daemon may have closed it."""
    play(open_display("auto", stream=None, environ=TERMINAL))


SCRIPT = """
import os, sys
from trainbox.display import open_display
display = open_display(sys.argv[1], stream=sys.stdout, environ=os.environ)
display.line("first")
sys.stdin.readline()
display.begin(epochs=1, steps_per_epoch=2000, step=0)
for step in range(1, 2001):
    display.update(epoch=0, step=step, scalars={})
    display.line(f"line {step}")
display.close()
print("alive", file=sys.stderr)
"""


@pytest.mark.parametrize("progress", ["plain", "live"])
def test_a_closed_pipe_silences_the_display_and_not_the_run(progress):
    """`trainbox train | head -1` trains to the end, without a traceback."""
    command = [sys.executable, "-c", SCRIPT, progress]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert "first" in child.stdout.readline()
        child.stdout.close()
        child.stdin.write("go\n")
        child.stdin.close()
        said = child.stderr.read()
    assert said == "trainbox: standard output cannot be written (Broken pipe); the run goes on\nalive\n"
    assert child.returncode == 0


def test_a_full_disk_under_the_log_is_said_once():
    """The run goes on, and its own files say in their turn whether they fit."""
    with open("/dev/full", "w") as full:
        child = subprocess.run(
            [sys.executable, "-c", SCRIPT, "plain"], input="go\n", stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert child.stderr == (
        "trainbox: standard output cannot be written (No space left on device); the run goes on\nalive\n"
    )
    assert child.returncode == 0


def test_a_tee_says_everything_to_all():
    """The screen and train.log get the same lines."""
    streams = [text_file(), text_file()]
    play(Tee(*[PlainDisplay(Outlet(stream)) for stream in streams]))
    assert [written(stream).splitlines() for stream in streams] == [LINES, LINES]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (0.98765, "0.9877"),
        (1234.5, "1234.5000"),
        (1e-5, "1.000e-05"),
        (123456.0, "1.235e+05"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_short(value, text):
    """A loss of any size keeps its digits."""
    assert number(value) == text


def test_an_epochs_line_has_what_was_measured():
    """Without validation and rate there is no word of them, and the epochs are aligned."""
    assert "".join(epoch_line(epoch=0, epochs=12, seconds=3.21, scalars={"train/loss": 0.5})) == (
        "epoch  1/12  loss 0.5000  3.2 s"
    )


def test_a_text_is_made_printable():
    """No text from outside can move the cursor or break the line."""
    assert printable("a\r\nb\tc\x1b[31m\x07") == "a b     c\\x1b[31m\\x07"


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ({}, ""),
        (
            {"gpu/0/utilization": 96.4, "gpu/0/memory_bytes": 5 * 2**29, "gpu/0/power_watts": 300.0},
            "  GPU 96 % 2.5 GiB",
        ),
        (
            {
                "gpu/0/utilization": 96.0,
                "gpu/1/utilization": 61.2,
                "gpu/0/memory_bytes": 2**30,
                "gpu/1/memory_bytes": None,
            },
            "  2 GPUs 61 to 96 % 1.0 GiB",
        ),
        ({"gpu/0/utilization": None, "gpu/0/memory_bytes": None}, ""),
    ],
)
def test_gpus_are_shown_in_short(gpus, words):
    """From the least busy to the most, and the most memory; what is not known is not shown."""
    _, rest = epoch_line(epoch=0, epochs=9, seconds=2.0, scalars={"train/loss": 0.5, **gpus})
    assert rest == f"  loss 0.5000{words}  2.0 s"
