"""The house: which room may import what, and that nothing happens at import."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "trainbox"
HEAVY = {"tensorflow", "keras", "tensorflow_datasets"}
# The rooms where models are built, fed and trained. All others answer before TensorFlow would be loaded.
COMPUTING = {
    "agreement",
    "augment",
    "averaging",
    "batch_split",
    "blocks",
    "callbacks",
    "checkpoint",
    "data.digits",
    "data.folder_builder",
    "data.pipeline",
    "determinism",
    "evaluate",
    "export",
    "fingerprint",
    "fit",
    "jobs.examples",
    "jobs.finishing",
    "jobs.looping",
    "jobs.recording",
    "jobs.saving",
    "learner",
    "legacy",
    "loop",
    "mixing",
    "models.cnn",
    "models.mlp",
    "models.own",
    "normalisation",
    "objective",
    "optimizers",
    "penalties",
    "practice",
    "reduction",
    "runtime",
    "scaling",
    "step",
    "strategy",
    "towers",
}
# What the command line needs to understand words and to show what a job does.
WORDS = {"", "config", "display", "errors", "run_folder", "settings", "values"}
NOT_AT_IMPORT = ("TYPE_CHECKING", "__name__ == '__main__'")
LONGEST_FILE, LONGEST_FUNCTION = 300, 50


@cache
def modules() -> dict[str, ast.Module]:
    """Every module by its name below trainbox; a package by its own name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(), filename=str(path))
    return found


def room(module: str) -> str:
    """The package or module at the top: `models` for `models.cnn`."""
    return module.partition(".")[0]


def imports(tree: ast.AST, *, inside_functions: bool) -> set[str]:
    """Full names that a module imports when it is loaded, or also when its functions run; not those for types alone."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.If) and ast.unparse(node.test) in NOT_AT_IMPORT:
            continue
        elif inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found |= imports(node, inside_functions=inside_functions)
    return found


def own(names: set[str]) -> set[str]:
    """The modules of trainbox among imported names."""
    found = set()
    for name in names:
        package, _, rest = name.partition(".")
        if package == "trainbox":
            found.add(next(part for part in (rest, rest.rpartition(".")[0], "") if part in modules()))
    return found


@pytest.mark.parametrize("module", modules())
def test_only_computing_rooms_load_tensorflow(module):
    """Neither at module level nor through a neighbour, so that words, devices and data are checked at once."""
    if module in COMPUTING:
        return
    loaded = imports(modules()[module], inside_functions=False)
    assert not {name for name in loaded if room(name) in HEAVY}
    assert not own(loaded) & COMPUTING


def test_every_computing_room_exists():
    """The list above has no room that was removed or renamed."""
    assert set(modules()) >= COMPUTING


def test_the_other_rooms_can_be_loaded_without_tensorflow():
    """Really imported, all of them in one process."""
    names = [f"trainbox.{name}" for name in modules() if name not in ("", "__main__") and name not in COMPUTING]
    code = f"import importlib, sys; [importlib.import_module(n) for n in {names}]; print({HEAVY} & set(sys.modules))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "set()\n"


@pytest.mark.parametrize("module", modules())
def test_only_the_corridor_joins_rooms(module):
    """The command line knows words and jobs, jobs know the rooms, and no room knows either."""
    known = {room(name) for name in own(imports(modules()[module], inside_functions=True))}
    if module == "__main__":
        assert known == {"cli"}
    elif room(module) == "cli":
        assert known <= WORDS | {"cli", "jobs"}
        assert "jobs" not in {room(n) for n in own(imports(modules()[module], inside_functions=False))}
    else:
        assert "cli" not in known
        assert room(module) == "jobs" or "jobs" not in known


def test_no_room_imports_itself_by_way_of_others():
    """Imports have a direction, those inside functions too."""
    graph: dict[str, set[str]] = {}
    for module, tree in modules().items():
        known = {room(name) for name in own(imports(tree, inside_functions=True))}
        graph.setdefault(room(module), set()).update(known - {room(module), ""})
    rest = dict(graph)
    while free := [name for name, known in rest.items() if not known & set(rest)]:
        for name in free:
            del rest[name]
    assert rest == {}


@pytest.mark.parametrize("module", modules())
def test_nothing_happens_at_import(module):
    """A module declares; a call whose result nobody keeps would do something."""
    for node in modules()[module].body:
        if isinstance(node, ast.Expr):
            assert isinstance(node.value, ast.Constant), ast.unparse(node)
        assert not isinstance(node, ast.For | ast.While | ast.With | ast.Try), ast.unparse(node)
        if isinstance(node, ast.If):
            assert ast.unparse(node.test) in NOT_AT_IMPORT, ast.unparse(node)


@pytest.mark.parametrize("module", modules())
def test_files_and_functions_are_short(module):
    """Short enough to be read at once, and what they are named after."""
    tree = modules()[module]
    lines = (tree.body[-1].end_lineno or 0) if tree.body else 0
    assert lines <= LONGEST_FILE
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, node.name
    assert module.rpartition(".")[2] not in ("util", "utils", "helpers", "common", "misc")


def test_a_job_is_loaded_when_it_is_called_for():
    """Listing devices takes half a second because it loads no other job; a name that is none is told."""
    code = "import sys; from trainbox import jobs; jobs.list_devices; print('trainbox.jobs.training' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "False\n"
    from trainbox import jobs

    assert all(callable(getattr(jobs, name)) for name in jobs.__all__)
    with pytest.raises(AttributeError, match=r"^trainbox\.jobs has no other$"):
        _ = jobs.other
