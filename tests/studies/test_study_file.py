"""A study file: what it says, and one line for each way of saying it wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcnn.errors import ConfigError
from hpcnn.studies.matrix import config_of, expand
from hpcnn.studies.study_file import Slurm, read_study
from hpcnn.studies.weak import unequal_work
from tests.support.mpi import REPOSITORY

READY = sorted((REPOSITORY / "jobs" / "studies").glob("*.toml"))
GOOD = """
repeats = 2
minutes = 5
[run]
epochs = 3
[backend.torch]
compile = true
[matrix]
ranks = [1, 2]
reducer = "plain"
[slurm]
partition = "batch"
options = ["--exclusive"]
"""


def read(folder: Path, text: str):
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_study(path)


def test_a_study_file_says_what_to_run(tmp_path: Path) -> None:
    study = read(tmp_path, GOOD)
    assert (study.name, study.out, study.repeats, study.minutes) == ("mine", Path("results/studies/mine"), 2, 5.0)
    assert study.blocks == [{"ranks": [1, 2], "reducer": ["plain"], "scaling": ["none"]}]
    assert study.slurm == Slurm(partition="batch", options=("--exclusive",))
    assert study.text == GOOD
    assert [config_of(cell).backend_option for cell in expand(study)] == [{"compile": True}] * 4
    assert read(tmp_path, 'name = "x"\n' + GOOD).out == Path("results/studies/x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no table [matrix]"),
        ("matrix = 3", "has no table [matrix]"),
        ("matrix = []", "has no table [matrix]"),
        ("repeat = 3\n[matrix]", "'repeat' is unknown: did you mean repeats?"),
        ("repeats = 0\n[matrix]", "repeats is 0: it must be a whole number from 1"),
        ("repeats = true\n[matrix]", "repeats is True: it must be a whole number from 1"),
        ("minutes = 0\n[matrix]", "minutes is 0.0: it must be a number above 0"),
        ('name = "a/b"\n[matrix]', "name is 'a/b': it must be a name without /"),
        ("warmup_steps = -1\n[matrix]", "warmup_steps is -1: it must be a whole number from 0"),
        ("[run]\nepoch = 3\n[matrix]", "[run] 'epoch' is unknown: did you mean epochs?"),
        ('[run]\nout = "x"\n[matrix]', "[run] out is what the study decides"),
        ("[matrix]\nrun_id = 3", "[matrix] run_id is what the study decides"),
        ("[matrix]\nrank = 3", "[matrix] 'rank' is unknown: did you mean ranks?"),
        ("[matrix]\nranks = []", "[matrix] ranks is []: give each value once"),
        ("[matrix]\nranks = [1, 1]", "[matrix] ranks is [1, 1]: give each value once"),
        ("[matrix]\nranks = [0]", "[matrix] ranks is 0: it must be a whole number from 1"),
        ('[matrix]\nscaling = "strange"', "scaling is 'strange': it must be one of none, strong, weak"),
        ('[matrix]\nreducer_option = "wire=float16"', "reducer_option is 'wire=float16': it must be tables"),
        ('[matrix]\nscaling = "weak"', "scaling weak holds the work of a rank: give rows_a_rank, without rows"),
        (
            '[matrix]\nscaling = "weak"\nrows_a_rank = 9\nbatch_a_rank = 3\nglobal_batch = 3',
            "give batch_a_rank, without global_batch",
        ),
        ("[matrix]\nbatch_a_rank = 3", "belong to scaling = \"weak\", not to 'none'"),
        ("[backend.abacus]\n[matrix]", "[backend.abacus] is unknown"),
        ("[slurm]\npart = 3\n[matrix]", "[slurm] 'part' is unknown"),
        ("[slurm]\ntime = 3\n[matrix]", "[slurm] time is 3: it must be a text"),
        ('[slurm]\noptions = "-x"\n[matrix]', "[slurm] options is '-x': it must be flags of sbatch"),
        ("[slurm]\nntasks_per_node = 0\n[matrix]", "[slurm] ntasks_per_node is 0"),
        ("[matrix", "is not TOML"),
    ],
)
def test_a_wrong_study_file_is_one_line_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'mine.toml'}: ")
    assert words in message
    assert "\n" not in message


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such study file; jobs/studies has ready ones"):
        read_study(tmp_path / "none.toml")


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_ready_studies_can_run_and_ranks_do_equal_work(path: Path) -> None:
    cells = expand(read_study(path))
    assert unequal_work(cells) == {}
    for cell in cells:
        assert config_of(cell).train == "data/train.csv"
        assert (cell.settings["rows"] or 0) <= 6000


def test_there_are_the_ready_studies() -> None:
    names = {path.stem for path in READY}
    assert names >= {"strong_scaling", "weak_scaling", "backends", "reducers", "pipeline_schedules"}
