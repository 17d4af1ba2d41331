"""Ranks that stay: carries out one `hpcnn` command after another, so that a start (MPI, torch) is paid for once.

Started by `tests.training.worlds`. Rank 0 reads a JSON list of arguments a line from standard input; each rank gives
them to the command's own `main`, and rank 0 answers with a JSON list of [status, stdout, stderr], one a rank.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from typing import Any

from mpi4py import MPI

from hpcnn import cli
from tests.wrappers import backends as _  # noqa: F401 (what Keras computes with where a test does not say)

IDLE_SECONDS = 0.001, 0.02
"""Of sleep between two looks, at first and in the end: idle ranks of all worlds look all the time."""


def carried_out(arguments: list[str]) -> int:
    if arguments[0] != "-m":
        return cli.main(arguments)
    importlib.import_module(arguments[1]).main(*arguments[2:])
    return 0


def carry_out(arguments: list[str]) -> tuple[int, str, str]:
    """Status, stdout and stderr of one command, as its file descriptors got them."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            status = carried_out(arguments)
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        except BaseException:
            traceback.print_exc()
            status = -1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            os.close(kept[0])
            os.close(kept[1])
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="backslashreplace"))
    return status, texts[0], texts[1]


def next_command(comm: Any) -> list[str] | None:
    """The next command on all ranks, None at the end. Ranks that wait sleep: MPI's own waiting would burn cores."""
    line = sys.stdin.readline() if comm.rank == 0 else ""
    request = comm.Ibarrier()
    pause, longest = IDLE_SECONDS
    while not request.Test():
        time.sleep(pause)
        pause = min(1.5 * pause, longest)
    line = comm.bcast(line)
    return json.loads(line) if line.strip() else None


def main() -> None:
    comm = MPI.COMM_WORLD.Clone()
    while (arguments := next_command(comm)) is not None:
        outcomes = comm.gather(carry_out(arguments))
        if comm.rank == 0:
            print(json.dumps(outcomes), flush=True)
    MPI.Finalize()
    os._exit(0)  # a framework takes seconds to be taken down


if __name__ == "__main__":
    main()
