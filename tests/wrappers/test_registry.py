from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcnn.errors import BackendError
from hpcnn.wrappers.registry import BACKENDS, Backend, check_backend, get_segment_class, register_backend, served_by
from tests.wrappers.backends import EVERY_BACKEND, KERAS_BACKEND, frameworks_of

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = ("modern", "classic")
FRAMEWORKS = {"torch", "tensorflow", "keras", "theano", "lasagne", "caffe", "jax"}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Backend]:
    """The registry, put back after the test."""
    copy = dict(BACKENDS)
    monkeypatch.setattr("hpcnn.wrappers.registry.BACKENDS", copy)
    return copy


def test_an_unknown_backend_lists_the_choices() -> None:
    with pytest.raises(BackendError, match=r"--backend 'torhc' is unknown: choose from .*torch"):
        get_segment_class("torhc")


def test_a_name_is_registered_once(registry: dict[str, Backend]) -> None:
    register_backend("new", "some.module", "SomeClass", ("json",))
    assert registry["new"] == Backend("new", "some.module", "SomeClass", ("json",), "modern", "new", "--backend new")
    with pytest.raises(BackendError, match=r"'new' is registered already, by some\.module: choose another name"):
        register_backend("new", "other.module", "OtherClass", ())


def test_a_backend_that_is_not_installed_names_what_is_missing_and_the_remedy(registry: dict[str, Backend]) -> None:
    register_backend("new", "some.module", "SomeClass", ("json", "no_such_package_a", "no_such_package_b"))
    assert registry["new"].missing == ("no_such_package_a", "no_such_package_b")
    message = r"--backend new needs no_such_package_a, no_such_package_b, .*`bash env/with\.sh new hpcnn \.\.\.`"
    for look_up in (check_backend, get_segment_class):
        with pytest.raises(BackendError, match=message):
            look_up("new")


def test_checking_a_backend_does_not_import_its_module(registry: dict[str, Backend]) -> None:
    register_backend("new", "no_such_module", "SomeClass", ("json",))
    assert check_backend("new").module == "no_such_module"
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        get_segment_class("new")


def test_this_environment_serves_every_backend_of_its_recipe() -> None:
    # tests run on what is installed: so that none is left out unseen, it is what one of the two recipes promises
    entries = {entry.word: entry for name in BACKENDS for entry in served_by(name) if entry.requires}
    ready = {word for word, entry in entries.items() if not entry.missing}
    recipes = {recipe: {word for word, entry in entries.items() if entry.recipe == recipe} for recipe in RECIPES}
    assert ready in recipes.values()
    assert set().union(*recipes.values()) == set(entries)


def test_what_needs_no_package_is_ready_everywhere() -> None:
    assert [name for name, entry in BACKENDS.items() if not entry.requires] == ["simulated"]
    assert check_backend("simulated").recipe not in RECIPES
    assert get_segment_class("simulated").backend == "simulated"


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh Python has loaded after `code`."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_contract_and_the_registry_import_no_framework_and_no_mpi() -> None:
    look_up = "[backend.missing for backend in registry.BACKENDS.values()]"
    loaded = loaded_after(f"from hpcnn.wrappers import contract, registry\n{look_up}")
    assert "hpcnn" in loaded
    assert not loaded & (FRAMEWORKS | {"mpi4py", "horovod"})


@EVERY_BACKEND
def test_using_one_backend_imports_no_other(backend: str) -> None:
    options = {"backend": KERAS_BACKEND} if backend == "keras" else {}
    loaded = loaded_after(
        f"from hpcnn.wrappers.registry import open_backend\nopen_backend({backend!r}, {options}, threads=1)"
    )
    assert loaded & FRAMEWORKS == frameworks_of(backend)
    assert not loaded & {"mpi4py", "horovod"}
