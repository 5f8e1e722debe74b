"""A user's own code, named as FILE.py:FUNCTION: found and checked without running it, then loaded and called.

The file may lie in any folder and import its siblings. Every failure of it becomes one line with its file and line.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import re
import symtable
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from trainbox.errors import UsageError

LONGEST_REASON = 300


@dataclass(frozen=True, kw_only=True)
class Reference:
    """FILE.py:FUNCTION as given to `option`; `path` is absolute."""

    option: str
    path: Path
    function: str

    def __str__(self) -> str:
        return f"{self.option} {self.path.name}:{self.function}"

    @property
    def sha256(self) -> str:
        """Digest of the file, in hexadecimal; the siblings that it imports are not in it."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


def parse(text: str, *, option: str) -> Reference:
    """The reference that `text`, the value of `option`, stands for. The code is read, not run.

    Raises:
        UsageError: not of this form, or the file cannot be read or parsed, or does not define the function.
    """
    name, _, function = text.rpartition(":")
    if not name.endswith(".py") or not function.isidentifier():
        raise UsageError(f"{option} {text!r} is not of the form FILE.py:FUNCTION, such as net.py:build")
    reference = Reference(option=option, path=Path(name).expanduser().absolute(), function=function)
    names = _top_level_names(reference)
    if function not in names and "*" not in names:
        near = get_close_matches(function, names, n=3, cutoff=0.0)
        known = f"it has {', '.join(near)}" if near else "it defines nothing"
        raise UsageError(f"{option}: {reference.path} does not define {function}; {known}")
    return reference


def call(reference: Reference, offered: Mapping[str, object]) -> Any:
    """What the function returns, called with those of the `offered` arguments that it names.

    Raises:
        UsageError: the file or the function fails, or it asks for an argument that is not offered.
    """
    with _folder_importable(reference.path.parent):
        function = _load(reference)
        arguments = _choose(function, offered, reference)
        with _failures_told(reference):
            return function(**arguments)


def one_line(error: BaseException) -> str:
    """Type and message of an exception, without line breaks and terminal codes, cut to a readable length."""
    message = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    if len(message) > LONGEST_REASON:
        message = message[:LONGEST_REASON].rstrip() + " …"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _top_level_names(reference: Reference) -> set[str]:
    """Every name that the file binds at its top level, and `*` if it imports one."""
    path, option = reference.path, reference.option
    try:
        source = importlib.util.decode_source(path.read_bytes())
        table = symtable.symtable(source, str(path), "exec")
        starred = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.parse(source).body)
    except FileNotFoundError:
        raise UsageError(f"{option}: there is no file {path}; give the path of a Python file") from None
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be read ({error.strerror}); give a readable Python file") from error
    except (SyntaxError, ValueError) as error:  # null bytes are a ValueError in the older releases
        line = getattr(error, "lineno", None)
        place, reason = (f"{path}:{line}" if line else path), getattr(error, "msg", error)
        raise UsageError(f"{option}: {place} is not valid Python ({reason}); correct it") from error
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return names | ({"*"} if starred else set())


def _load(reference: Reference) -> Callable[..., Any]:
    module = _module(reference)
    function = getattr(module, reference.function, None)
    if not callable(function):
        raise UsageError(f"{reference}: {reference.function} is {type(function).__name__}, not a function; name one")
    return function


def _module(reference: Reference) -> ModuleType:
    """The file as a module, run once a process, under a name that no other module can have."""
    digest = hashlib.sha256(str(reference.path).encode()).hexdigest()[:8]
    name = f"trainbox_plugin_{digest}_{reference.path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(reference.path)
    sys.modules[name] = module
    try:
        with _failures_told(reference):
            exec(compile(reference.path.read_bytes(), reference.path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _choose(function: Callable[..., Any], offered: Mapping[str, object], reference: Reference) -> dict[str, object]:
    """The offered arguments that the function names (all of them if it takes `**`)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return dict(offered)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        chosen = dict(offered)
    else:
        chosen = {p.name: offered[p.name] for p in parameters if p.name in offered and p.kind is not p.POSITIONAL_ONLY}
    unbindable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in parameters:
        wanted = parameter.kind not in unbindable and parameter.default is parameter.empty
        if wanted and (parameter.name not in chosen or parameter.kind is parameter.POSITIONAL_ONLY):
            raise UsageError(
                f"{reference}: {reference.function}{inspect.signature(function)} asks for {parameter.name}, which is "
                f"not offered by name; it can have {', '.join(offered)}"
            )
    return chosen


@contextmanager
def _folder_importable(folder: Path) -> Iterator[None]:
    """Put `folder` first on the import path, and afterwards take it off again and forget what was imported from it.

    A file's siblings are its own: another plugin may have a `helpers.py` too. No byte code is written beside them.
    """
    before = set(sys.modules)
    writes_nothing = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_nothing
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        new = sorted(set(sys.modules) - before)
        siblings = {name for name in new if "." not in name and _lies_in(sys.modules[name], folder)}
        for name in new:
            if name.partition(".")[0] in siblings:
                del sys.modules[name]


def _lies_in(module: ModuleType, folder: Path) -> bool:
    """Whether a sibling import found it: not one that merely lies deeper, such as a virtual environment's packages."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    places = list(spec.submodule_search_locations or [spec.origin or ""])
    return any(Path(place).parent == folder for place in places)


@contextmanager
def _failures_told(reference: Reference) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise UsageError(f"{reference} failed at {_place(error, reference)}: {one_line(error)}") from error


def _place(error: BaseException, reference: Reference) -> str:
    """File and line in the user's own code: the innermost frame in the plugin's folder."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent == reference.path.parent]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else str(reference.path)
