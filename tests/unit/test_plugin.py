"""A user's own code: found without running it, loaded from any folder, and told about in one line when it fails."""

import hashlib
import sys
from pathlib import Path

import pytest

from trainbox import plugin
from trainbox.errors import UsageError


def write(folder: Path, text: str, name: str = "net.py") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def parse(path: Path, function: str = "build") -> plugin.Reference:
    return plugin.parse(f"{path}:{function}", option="--model")


def test_parsing_does_not_run_the_file(tmp_path):
    """A name that the file binds in any way is found by reading alone."""
    path = write(tmp_path, "if True:\n    from os import path as build\nraise SystemExit\n")
    assert parse(path).path == path


def test_a_starred_import_may_bring_the_function(tmp_path):
    """What `import *` binds cannot be known by reading, so it is believed."""
    assert parse(write(tmp_path, "from layers import *\n")).function == "build"


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    """The file is found from the working folder and named in full from then on."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "def build(): ...\n")
    assert plugin.parse("net.py:build", option="--model").path == tmp_path / "net.py"


def test_the_digest_is_of_the_file(tmp_path):
    """The manifest gets the SHA-256 of the file's bytes."""
    reference = parse(write(tmp_path, "def build(): ...\n"))
    assert reference.sha256 == hashlib.sha256(b"def build(): ...\n").hexdigest()


@pytest.mark.parametrize("text", ["net.py", "net.py:", "net.txt:build", "net.py:a-b", ":build"])
def test_other_forms_are_refused(text):
    """Only FILE.py:FUNCTION is a reference."""
    with pytest.raises(UsageError) as raised:
        plugin.parse(text, option="--callbacks")
    assert str(raised.value) == f"--callbacks {text!r} is not of the form FILE.py:FUNCTION, such as net.py:build"


def test_a_missing_file_is_named(tmp_path):
    """The absolute path looked at is in the message."""
    with pytest.raises(UsageError) as raised:
        parse(tmp_path / "no.py")
    assert str(raised.value) == f"--model: there is no file {tmp_path}/no.py; give the path of a Python file"


def test_a_folder_is_no_file(tmp_path):
    """What exists but cannot be read says why."""
    (tmp_path / "net.py").mkdir()
    with pytest.raises(UsageError) as raised:
        parse(tmp_path / "net.py")
    assert str(raised.value) == (
        f"--model: {tmp_path}/net.py cannot be read (Is a directory); give a readable Python file"
    )


def test_a_missing_function_names_the_nearest(tmp_path):
    """What the file does define is said, nearest first."""
    path = write(tmp_path, "import os\ndef biuld(): ...\n")
    with pytest.raises(UsageError) as raised:
        parse(path)
    assert str(raised.value) == f"--model: {path} does not define build; it has biuld, os"
    with pytest.raises(UsageError, match=r"does not define build; it defines nothing$"):
        parse(write(tmp_path, "", "empty.py"))


def test_a_syntax_error_has_its_line(tmp_path):
    """Broken Python is known before anything is loaded."""
    path = write(tmp_path, "x = 1\ndef build(:\n")
    with pytest.raises(UsageError) as raised:
        parse(path)
    assert str(raised.value) == f"--model: {path}:2 is not valid Python (invalid syntax); correct it"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe\xff", "is not valid Python (invalid or missing encoding declaration); correct it"),
        (b"# \xc3\xa9\n# \xe9\n" * 20, "is not valid Python (invalid or missing encoding declaration); correct it"),
        (b"x = 1\0\n", "is not valid Python (source code string cannot contain null bytes); correct it"),
    ],
)
def test_a_binary_file_is_no_source(tmp_path, content, reason):
    """Bytes that are no text are refused in words."""
    path = tmp_path / "net.py"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        parse(path)
    assert str(raised.value) == f"--model: {path} {reason}"


def test_it_gets_what_it_asks_for_by_name(tmp_path):
    """Of what is offered, a function is given exactly the arguments it names; with ** all of them."""
    path = write(
        tmp_path,
        "def build(b, *, c=3, d=4): return b, c, d\n"
        "def every(**offered): return offered\n"
        "class Kind:\n    def __init__(self, a): self.a = a\n",
    )
    offered = {"a": 1, "b": 2, "c": 9}
    assert plugin.call(parse(path), offered) == (2, 9, 4)
    assert plugin.call(parse(path, "every"), offered) == offered
    assert plugin.call(parse(path, "Kind"), offered).a == 1


@pytest.mark.parametrize("signature", ["(width)", "(a, /)", "(a, *, width)", "(width, **rest)"])
def test_it_cannot_ask_for_what_is_not_offered(tmp_path, signature):
    """An argument that nobody offers is named, and those that can be had."""
    path = write(tmp_path, f"def build{signature}: ...\n")
    with pytest.raises(UsageError) as raised:
        plugin.call(parse(path), {"a": 1, "b": 2})
    asked = "a" if "/" in signature else "width"
    assert str(raised.value) == (
        f"--model net.py:build: build{signature} asks for {asked}, which is not offered by name; it can have a, b"
    )


def test_what_is_no_function_is_refused(tmp_path):
    """A name that is bound to something else is told with its type."""
    with pytest.raises(UsageError) as raised:
        plugin.call(parse(write(tmp_path, "build = 7\n")), {})
    assert str(raised.value) == "--model net.py:build: build is int, not a function; name one"


def test_siblings_are_imported_and_leave_no_trace(tmp_path):
    """Imports beside the file work, at its top and in the function; path, modules and folder are as before after it."""
    for folder, value in (("one", 1), ("two", 2)):
        path = write(tmp_path / folder, "import helper\ndef build():\n    import late\n    return helper.x, late.x\n")
        write(path.parent, f"from pack import x\nx += {value}\n", "helper.py")
        write(path.parent, f"x = {value}\n", "late.py")
        write(path.parent / "pack", "x = 10\n", "__init__.py")
    before, modules = list(sys.path), set(sys.modules)
    assert plugin.call(parse(tmp_path / "one" / "net.py"), {}) == (11, 1)
    assert plugin.call(parse(tmp_path / "two" / "net.py"), {}) == (12, 2)
    assert sys.path == before
    assert {name.partition("_")[0] for name in set(sys.modules) - modules} == {"trainbox"}
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_file_runs_once(tmp_path):
    """Two functions of one file share its globals."""
    path = write(tmp_path, "made = []\ndef build(): made.append(1); return made\ndef other(): return made\n")
    assert plugin.call(parse(path), {}) is plugin.call(parse(path, "other"), {})


@pytest.mark.parametrize(
    ("body", "place", "reason"),
    [
        ("def build():\n    raise ValueError('first\\n  \\x1b[1msecond')\n", "net.py:2", "ValueError: first second"),
        ("def build():\n    import json\n    json.loads('{')\n", "net.py:3", "JSONDecodeError: "),
        ("def build(): raise SystemExit\n", "net.py:1", "SystemExit"),
        ("import no_such_module\nbuild = 1\n", "net.py:1", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("import helper\nbuild = 1\n", "helper.py:2", "ZeroDivisionError: division by zero"),
        ("import broken\nbuild = 1\n", "broken.py:1", "SyntaxError: invalid syntax"),
    ],
)
def test_a_failure_is_one_line_with_its_place(tmp_path, body, place, reason):
    """The user's innermost line is named, in the file or a sibling, never a line of a library."""
    path = write(tmp_path, body)
    write(tmp_path, "x = 0\n1 / x\n", "helper.py")
    write(tmp_path, "def (\n", "broken.py")
    with pytest.raises(UsageError) as raised:
        plugin.call(parse(path), {})
    assert str(raised.value).startswith(f"--model net.py:build failed at {tmp_path}/{place}: {reason}")
    assert "\n" not in str(raised.value)


def test_a_long_reason_is_cut():
    """A page of text does not become the one line."""
    assert plugin.one_line(ValueError("x" * 999)) == "ValueError: " + "x" * 300 + " …"
