"""What starts fast stays fast, one framework never drags in another, and rooms are built on each other in one order."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mpi import REPOSITORY, SETTINGS, run_session
from tests.wrappers.backends import EVERY_BACKEND, frameworks_of

PACKAGE = REPOSITORY / "hpcnn"
ROOMS = (
    "errors", "options", "backend_options", "reducer_options", "config_fields", "config", "config_sources", "records",
    "network", "data", "wrappers", "parallel", "training", "studies", "cluster", "cli", "__main__",
)  # fmt: skip
FRAMEWORKS = {"torch", "tensorflow", "keras", "theano", "lasagne", "caffe", "horovod", "jax", "torchvision"}
HEAVY = FRAMEWORKS | {"mpi4py", "numpy", "pandas", "h5py", "tqdm", "matplotlib", "scipy"}

# The finder sees every import that is tried, also one that fails and is caught.
PROBE = """
import json, sys
tried = set()
class Witness:
    def find_spec(self, name, path=None, target=None):
        tried.add(name.partition(".")[0])
sys.meta_path.insert(0, Witness())
def report():
    json.dump({"tried": sorted(tried), "loaded": sorted({name.partition(".")[0] for name in sys.modules})}, sys.stderr)
"""


def imports(program: str) -> dict[str, set[str]]:
    """Top-level names of all modules that a program tried to import or asked for, and of those that it loaded."""
    run = run_session([sys.executable, "-c", f"{PROBE}\ntry:\n    {program}\nfinally:\n    report()"], env=SETTINGS)
    _, _, found = run.stderr.rpartition('{"tried"')
    names = {kind: set(some) for kind, some in json.loads('{"tried"' + found.splitlines()[0]).items()}
    assert "hpcnn" in names["tried"] & names["loaded"], run.stderr
    return names


@pytest.mark.parametrize(
    "program",
    [
        "import hpcnn",
        "import hpcnn.config, hpcnn.errors, hpcnn.cli",
        "from hpcnn.cli import main; main(['--help'])",
        "from hpcnn.cli import main; main(['train', '--help'])",
        "from hpcnn.cli import main; main(['study', 'run', '--help'])",
        "from hpcnn.cli import main; main(['--version'])",
        "from hpcnn.cli import main; main(['train', '--epochs', 'many'])",
        "from hpcnn.cli import main; main(['fly'])",
    ],
)
def test_the_package_its_help_and_its_refusals_import_nothing_heavy(program: str) -> None:
    assert imports(program)["tried"] & HEAVY == set()


@pytest.mark.parametrize("arguments", [["networks"], ["plan", "--strategy", "pipeline", "--grid", "pp=2"]])
def test_listing_networks_and_planning_import_no_framework_and_no_mpi(arguments: list[str]) -> None:
    found = imports(f"from hpcnn.cli import main; assert main({arguments}) == 0")["tried"]
    assert found & (FRAMEWORKS | {"mpi4py", "pandas", "h5py"}) == set()
    assert "numpy" in found


def test_a_bad_file_is_refused_before_any_framework_is_imported() -> None:
    found = imports("from hpcnn.cli import main; main(['train', '--train', 'nowhere.csv'])")["loaded"]
    assert "mpi4py" in found
    assert found & FRAMEWORKS == set()


@EVERY_BACKEND
def test_a_training_with_one_framework_tries_no_other(backend: str, tmp_path: Path) -> None:
    arguments = [
        "train", "--train", "data/test.csv", "--max-steps", "1", "--out", str(tmp_path), "--backend", backend,
        "--threads", "1",
    ]  # fmt: skip
    found = imports(f"from hpcnn.cli import main; assert main({arguments}) == 0")["tried"]
    assert next(tmp_path.iterdir()).is_dir()
    assert found & FRAMEWORKS == frameworks_of(backend)
    assert backend == "keras" or "matplotlib" not in found  # Keras looks for it, to draw networks
    assert backend != "torch" or "sympy" not in found  # see hpcnn/wrappers/torch_backward.py


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield node.module or ""
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(name: str) -> str | None:
    """The room of a module's dotted name, None outside the package and for the package itself."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hpcnn" and len(parts) > 1 and parts[1] in ROOMS else None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above_it(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in ROOMS, "a new room needs its place in the order"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for name in imported(node):
            room = room_of(name)
            if room is not None:
                assert ROOMS.index(room) <= ROOMS.index(own), f"{own} imports {name}"


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when a module is imported: all but the bodies of functions and of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from at_import(child)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_a_framework_or_mpi_at_its_top_but_a_frameworks_own_wrapper(path: Path) -> None:
    # what Keras computes with is a wrapper too, and a long wrapper has parts
    about = re.fullmatch(r"(?:keras_on_)?(\w+?)(?:_(?:wrapper|layers|native|split|ddp|vectors|backward))?", path.stem)
    own = about[1] if about and about[0] != about[1] else ""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = {name.partition(".")[0] for node in at_import(tree) for name in imported(node)}
    assert top & (FRAMEWORKS | {"mpi4py", "pandas", "tqdm", "matplotlib"}) <= {own}


def test_the_order_of_rooms_would_notice_a_room_that_reaches_down() -> None:
    node = ast.parse("def late():\n    from hpcnn.training import run").body[0]
    found = [room_of(name) for inner in ast.walk(node) for name in imported(inner)]
    assert found == ["training", "training"]
    assert room_of("numpy.random") is None
    assert room_of("hpcnn") is None
