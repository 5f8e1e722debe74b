"""The edge: from the words of a command line to an exit code.

Logic raises; here, and only here, an error becomes one line on standard error. Nothing heavy is imported at module
level, so that a signal finds a handler and `--help` an answer at once.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from trainbox.display import printable
from trainbox.errors import RunFailedError, TrainboxError

LONGEST_MESSAGE = 600
# As long as a second signal would have to wait to end a run at once.
GRACE_SECONDS = 2.0


class EndedError(SystemExit):
    """A signal ended the process. It is no Exception, so no library takes it for a failure of its own."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signal = signal.Signals(signum).name


def main(arguments: list[str] | None = None) -> int:
    """Run `trainbox` with the words after its name, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    open_standard_streams()
    answer_signals()
    debug = "--debug" in arguments
    return guarded(lambda: _understand_and_do(arguments), debug=debug)


def open_standard_streams() -> None:
    """Occupy descriptors 0 to 2 where the caller closed them, lest a file of the run become standard error."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Takes the lowest free number.


def answer_signals() -> None:
    """End on SIGTERM and SIGUSR1 until the run's own handlers are in place: as PID 1 a process would ignore them."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(signum: int, frame: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_IGN)  # Slurm sends its signals twice.
    last = threading.Timer(GRACE_SECONDS, os._exit, [128 + signum])
    last.daemon = True
    last.start()
    raise EndedError(signum)


def guarded(work: Callable[[], int], *, debug: bool) -> int:
    """Do `work` and return its exit code, or that of the error that it ends in, told in one line."""
    try:
        return work()
    except TrainboxError as error:
        complain(str(error), debug=debug)
        return error.exit_code
    except KeyboardInterrupt:
        complain("interrupted", debug=debug)
        return 128 + signal.SIGINT
    except SystemExit as end:
        if isinstance(end, EndedError):
            complain(f"ended by {end.signal}")
        return _code(end)
    except Exception as error:
        hint = "" if debug else "; --debug shows where"
        complain(f"unexpected {type(error).__name__}: {error}".rstrip(": "), hint, debug=debug)
        return 1


def _code(end: SystemExit) -> int:
    if isinstance(end.code, int) or end.code is None:
        return end.code or 0
    complain(str(end.code))
    return 1


def _understand_and_do(arguments: list[str]) -> int:
    parsed = _understand(arguments)
    if isinstance(parsed, int):
        return parsed
    parsed()
    return 0


def _understand(arguments: list[str]) -> Callable[[], None] | int:
    """The job that the words ask for, or the exit code where help or a version was the whole wish."""
    from typer.exceptions import TyperException

    from trainbox.cli.program import build

    said = io.StringIO()
    try:
        # Typer writes here, not to the pipe, which may be closed, or the console, which may know no more than ASCII.
        with contextlib.redirect_stdout(said):
            parsed: Any = build().main(arguments, prog_name="trainbox", standalone_mode=False)
    except TyperException as error:
        if not arguments:
            tell(error.ctx.get_help() + "\n", sys.stderr)  # type: ignore[attr-defined]
        complain(_usage(error))
        return 2
    tell(said.getvalue())
    return parsed or 0


def _usage(error: Any) -> str:
    """Typer's message in one line, with what is nearest and where to look."""
    message = error.message if hasattr(error, "possibilities") else error.format_message().rstrip(".")
    near = getattr(error, "possibilities", None) or []
    context = getattr(error, "ctx", None)
    if near:
        message += f"; did you mean {near[0]}?"
    elif hasattr(error, "possibilities") and context and context.parent is None:
        message += "; options of a command follow its name, as in trainbox train --epochs 3"
    elif "unexpected extra argument" in message:
        message += "; a value follows its option, and a switch such as --offline or --no-offline takes none"
    where = context.command_path if context else "trainbox"
    return f"{message[:1].lower()}{message[1:]} (see {where} --help)"


def tell(text: str, stream: TextIO | None = None) -> None:
    """Write to standard output; whoever closed it has seen enough, and what its encoding lacks is escaped.

    Raises:
        RunFailedError: it cannot be written, as on a full disk.
    """
    stream = stream or sys.stdout
    if stream is None or not text:
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
    except OSError as error:
        _silence(stream)
        raise RunFailedError(f"cannot write the answer: {error.strerror}") from error


def _silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere: at its end the interpreter would fail on it once more."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def complain(message: str, hint: str = "", *, debug: bool = False) -> None:
    """Say one line on standard error, after the traceback of the current exception if `debug`."""
    line = printable(" ".join(message.split()))
    line = line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        if debug:
            import traceback

            traceback.print_exc()
        print(f"trainbox: {line}{hint}", file=sys.stderr, flush=True)
