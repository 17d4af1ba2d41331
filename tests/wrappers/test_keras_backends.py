"""Keras over what its own conformance tests do not run it over, each in a process; and what it takes from outside."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.kept import QUICK_XLA
from tests.support.mpi import REPOSITORY, run_session

pytestmark = pytest.mark.needs("keras", "tensorflow", "torch", "jax")
SUITE = (
    "tests/wrappers/test_contract.py",
    "tests/wrappers/test_layer_kinds.py",
    "tests/wrappers/test_native.py",
    "tests/wrappers/test_segments.py",
    "tests/wrappers/test_slots.py",
    "tests/wrappers/test_ties.py",
    "tests/parity/test_step0.py",
    "tests/parallel/test_micro_batches.py",
)
FRAMEWORKS = {"torch", "tensorflow", "jax"}
EVERY_KERAS = pytest.mark.parametrize("over", sorted(FRAMEWORKS))

STEP = """
import json, sys
import numpy as np
from hpcnn.network import segment_masks
from hpcnn.wrappers.registry import open_backend
from tests.wrappers.probes import DEEP, some_rows, some_weights
segment, rows = DEEP.whole, some_rows(DEEP.whole, 5)
weights, gradient = some_weights(segment), np.zeros(segment.size, np.float32)
model = open_backend("keras", {options}, threads={threads})(segment, weights, gradient)
model.forward(0, rows.x, rows.masks)
result = model.loss_backward(0, rows.labels, 7.0)
print(json.dumps({{
    "loss": result.loss_sum, "gradient": gradient.tolist(), "settings": model.describe(),
    "loaded": [name for name in {frameworks} if sys.modules.get(name) is not None],
}}))
"""


def python(code: str, **variables: str) -> Any:
    """What `code` prints last, as JSON, in a process of its own."""
    run = run_session([sys.executable, "-c", code], timeout=300, env={**variables, "PYTHONPATH": str(REPOSITORY)})
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout.splitlines()[-1])


def step(over: str, threads: int = 1, **variables: str) -> Any:
    return python(STEP.format(options={"backend": over}, threads=threads, frameworks=sorted(FRAMEWORKS)), **variables)


@pytest.mark.slow
@pytest.mark.parametrize("over", ["jax", "torch"])
def test_the_conformance_suite(over: str) -> None:
    settings = {"HPCNN_TEST_KERAS_BACKEND": over, **QUICK_XLA}
    command = [sys.executable, "-m", "pytest", "-q", "-k", "keras", "-p", "no:cacheprovider", *SUITE]
    run = run_session(command, timeout=3600, env=settings)
    assert run.returncode == 0, run.stdout
    # Keras itself may warn of how it calls NumPy; a test that fails or is skipped is told in this line too
    found = re.fullmatch(r"(\d+) passed, \d+ deselected(?:, \d+ warnings)? in .*", run.stdout.splitlines()[-1])
    assert found, run.stdout
    assert int(found[1]) > 150


@cache
def usual(over: str) -> Any:
    return step(over)


@EVERY_KERAS
def test_one_step_imports_one_framework_and_says_what_it_ran_on(over: str) -> None:
    found = usual(over)
    assert found["loaded"] == [over]
    settings = found["settings"]
    assert settings["keras_backend"] == over
    assert settings["compiled_by_xla"] is (over == "jax")
    assert settings["data_format"] == ("channels_first" if over == "torch" else "channels_last")
    assert [settings[name] for name in ("threads", "intra_op_threads") if name in settings] in ([1], ["1"])


@EVERY_KERAS
def test_the_users_own_keras_settings_change_nothing(over: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".keras").mkdir(parents=True)
    other = {"floatx": "float16", "epsilon": 0.1, "image_data_format": "channels_first", "backend": "numpy"}
    (home / ".keras" / "keras.json").write_text(json.dumps(other))
    environments = {  # all are read before Keras knows what it runs over
        "tensorflow": {"HOME": str(home)},
        "torch": {"KERAS_HOME": str(home / ".keras")},
        "jax": {"HOME": str(tmp_path / "none"), "KERAS_BACKEND": "numpy"},
    }
    assert step(over, **environments[over]) == usual(over)
    assert not (tmp_path / "none").exists()


@EVERY_KERAS
def test_settings_made_in_the_process_change_nothing(over: str) -> None:
    code = STEP.format(options={"backend": over}, threads=1, frameworks=[])
    own = "keras.config.set_floatx('float16'); keras.config.set_image_data_format('channels_first')"
    policy = "keras.config.set_dtype_policy('mixed_float16')"
    before = f"from hpcnn.wrappers.keras_import import import_keras\nkeras = import_keras({over!r}); {own}; {policy}\n"
    assert python(before + code)["gradient"] == usual(over)["gradient"]


def test_a_home_that_cannot_be_written_to_is_none_of_kerass_business(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    step("jax", HOME=str(tmp_path))
    step("jax", HOME=os.devnull)
    assert not list(tmp_path.iterdir())


ANOTHER = """
import json
from hpcnn.errors import BackendError
from hpcnn.wrappers.registry import open_backend
open_backend("keras", {first}, threads={threads})
{between}
try:
    open_backend("keras", {second}, threads=1)
except BackendError as error:
    print(json.dumps(str(error)))
"""


def refusal(first: dict[str, Any], second: dict[str, Any], threads: int = 1, between: str = "") -> str:
    found: str = python(ANOTHER.format(first=first, second=second, threads=threads, between=between))
    return found


def test_a_second_framework_in_one_process_is_refused_in_a_line() -> None:
    message = "Keras runs in this process already, over jax, not torch: start another process, or take --keras-backend"
    assert refusal({"backend": "jax"}, {"backend": "torch"}) == f"{message} jax"


def test_other_threads_are_refused_once_jax_runs() -> None:
    message = "JAX runs in this process already, with 2 threads, not 1: start another process"
    assert refusal({"backend": "jax"}, {"backend": "jax"}, 2, "import jax; jax.numpy.ones(3)") == message


def test_xla_is_refused_over_torch() -> None:
    over = {"backend": "torch"}
    assert "jit_compile is not for Keras over torch" in refusal(over, {**over, "jit_compile": True})


THREADS = """
import os, time
count = {count}
from hpcnn.wrappers.registry import open_backend
open_backend("keras", {{"backend": "jax"}}, threads=count)
import jax, jax.numpy as jnp
def pools():
    return len(os.listdir("/proc/self/task"))
before = pools()
jax.block_until_ready(jnp.ones(3))
print(pools() - before)
"""


def test_threads_of_jax_are_as_many_as_asked() -> None:
    # Its client starts pools of that many threads each, and some threads besides.
    one, three, five = (python(THREADS.format(count=count)) for count in (1, 3, 5))
    assert three > one
    assert three - one == five - three
