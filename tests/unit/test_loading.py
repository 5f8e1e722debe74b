"""TensorFlow is imported in silence, and what matters is still heard."""

import subprocess
import sys

import pytest

LINES = r"""
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1 port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results
W0000 00:00:2 something.cc:1] Could not find cuda drivers
"""


def ran(code):
    """The exit code and the standard error of a program."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_import_says_nothing():
    """On any processor: what TensorFlow says of oneDNN and of the processor's instructions is kept back."""
    assert ran("from trainbox.loading import load_tensorflow as load; load(); load(); import tensorflow") == (0, "")


def test_no_plots_are_loaded_and_a_user_may_still_plot():
    """Keras would import matplotlib, which costs a second and writes into HOME."""
    program = """
import sys
from trainbox.loading import load_tensorflow
load_tensorflow()
assert "keras" in sys.modules and "matplotlib" not in sys.modules
import matplotlib
kept = matplotlib
sys.modules.pop("tensorflow")
load_tensorflow()
assert sys.modules["matplotlib"] is kept
"""
    assert ran(program) == (0, "")


@pytest.mark.parametrize(("end", "code"), [("", 0), ("os.abort()", -6), ("os.kill(os.getpid(), 9)", -9)])
def test_other_lines_are_passed_on(end, code):
    """Also those of a process that ends while it imports; afterwards standard error is the process's own again."""
    program = f"""
import os
from trainbox.loading import without_notices
with without_notices():
    os.write(2, {LINES.strip().encode()!r} + b"\\n")
    {end or "pass"}
os.write(2, b"port.cc: oneDNN custom operations are on\\n")
"""
    returncode, said = ran(program)
    after = "" if end else "port.cc: oneDNN custom operations are on\n"
    assert (returncode, said) == (code, "W0000 00:00:2 something.cc:1] Could not find cuda drivers\n" + after)
