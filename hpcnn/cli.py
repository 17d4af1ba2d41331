"""The command `hpcnn` and its verbs. A verb imports what it needs when it runs: help and refusals are instant."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import difflib
import faulthandler
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hpcnn import __version__
from hpcnn.cluster.endings import abort, leave, refuse, sigterm_stops, stopped
from hpcnn.cluster.study_verbs import add_verbs as add_study_verbs
from hpcnn.config import OF_PIPELINES, PIPELINES, RunConfig
from hpcnn.config_sources import KERAS_BACKEND, add_flags, config_from, read_run_file
from hpcnn.errors import ConfigError, HpcnnError, LaunchError, NotInstalledError

RUN_FLAGS = ["--auto-env", *("--" + name.replace("_", "-") for name in RunConfig.__dataclass_fields__)]

Verb = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """An argument parser that takes no shortened flags and whose errors are ours: one line, said once across ranks."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: --"):
            flag = message.split()[2].partition("=")[0]
            near = difflib.get_close_matches(flag, RUN_FLAGS, n=1)
            message += f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit status: 0 done, 1 refused or failed, 2 a wrong flag or file, 128 + a signal."""
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # Python looks for garbage as it ends: 0.4 s, where a framework has been imported
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no run
    try:
        return _run(arguments)
    except HpcnnError as error:
        return refuse(error)
    except KeyboardInterrupt as stop:
        return stopped(stop)
    except OSError as error:
        # Standard output is closed (whoever read has seen enough: no words) or full; nothing to flush at Python's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            where = error.filename or "standard output"
            print(f"hpcnn: {where}: {error.strerror or error}", file=sys.stderr, flush=True)
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    try:
        options = _parser().parse_args(arguments)
        verb: Verb = options.verb
        if verb not in (_train, _doctor):
            _check_alone()
        return verb(options)
    except NotInstalledError as error:
        if not getattr(options, "auto_env", False):
            raise
        from hpcnn.cluster.environments import start_again

        start_again(error, sys.argv[1:] if arguments is None else arguments)
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _check_alone() -> None:
    """Only `train` and `doctor` are for many ranks. SLURM_NTASKS alone may be of the job script that calls it."""
    from hpcnn.cluster.launch import promised_size

    promise = promised_size({name: text for name, text in os.environ.items() if name != "SLURM_NTASKS"})
    if promise is not None and promise[0] > 1:
        raise LaunchError(
            f"{promise[1]} says that {promise[0]} processes run: start this one alone, without a launcher"
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="hpcnn",
        description="Train one convolutional network in parallel and find out what the parallelism did.",
    )
    parser.add_argument("--version", action="version", version=f"hpcnn {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=_Parser)

    train = verbs.add_parser("train", help="train a network on the rows of a CSV, on one rank or many")
    train.add_argument("run", nargs="?", metavar="RUN.toml", help="settings in a table [run]; flags override them")
    add_flags(train)
    _add_auto_env(train)
    train.set_defaults(verb=_train)

    plan = verbs.add_parser("plan", help="what a training would be: stages, schedule table, memory of each rank")
    plan.add_argument("run", nargs="?", metavar="RUN.toml", help="settings in a table [run]; flags override them")
    add_flags(plan)
    plan.set_defaults(verb=_plan)

    predict = verbs.add_parser("predict", help="classes for the rows of a CSV, from a run's checkpoint")
    predict.add_argument("run", metavar="RUN", help="a run's folder or a checkpoint")
    predict.add_argument("--data", required=True, metavar="CSV", help="rows, with labels or without")
    predict.add_argument("--out", required=True, metavar="CSV", help="where ImageId,Label goes")
    predict.add_argument("--backend", help="the framework that computes (default: the one that trained)")
    predict.add_argument("--keras-backend", help="what Keras computes with (default: as it trained)")
    predict.add_argument("--label-column", default="auto", help="auto, first, last, none, a name or a column from 0")
    predict.add_argument("--header", default="auto", choices=("auto", "yes", "no"), help="whether the CSV has a header")
    _add_auto_env(predict)
    predict.set_defaults(verb=_predict)

    compare = verbs.add_parser("compare", help="same training, float noise, or different and why")
    compare.add_argument("baseline", metavar="BASELINE", help="folder of the run that is held to be right")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="folders of the runs to judge")
    compare.add_argument(
        "--noise", nargs="+", default=[], metavar="RUN", help="repeats of the baseline, at least 3, to measure noise by"
    )
    compare.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="the verdict as JSON, to a file or instead of the text"
    )
    compare.set_defaults(verb=_compare)

    doctor = verbs.add_parser("doctor", help="what a training would meet here: MPI, cores, GPUs, folders, network")
    doctor.add_argument("run", nargs="?", metavar="RUN.toml", help="settings in a table [run]; flags override them")
    doctor.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="the findings as JSON, to a file or instead of the text"
    )
    add_flags(doctor)
    doctor.set_defaults(verb=_doctor)

    add_study_verbs(verbs)

    for name, text, verb in (
        ("networks", "networks that come with the suite", _networks),
        ("backends", "frameworks, and what is missing to use one", _backends),
    ):
        verbs.add_parser(name, help=text).set_defaults(verb=verb)
    return parser


def _add_auto_env(parser: argparse.ArgumentParser) -> None:
    text = "where this environment lacks the backend, start again in the one that has it (env/with.sh)"
    parser.add_argument("--auto-env", action="store_true", help=text)


def _train(options: argparse.Namespace) -> int:
    config = _train_config(options)
    with contextlib.suppress(OSError, ValueError):  # no standard error
        faulthandler.enable(2)  # where a rank was that a library has crashed
    from hpcnn.cluster.launch import open_world
    from hpcnn.wrappers.registry import check_backend

    check_backend(config.backend, config.backend_option)
    comm = open_world(os.environ, config.strategy)
    try:
        from hpcnn.training.run import train

        with sigterm_stops():
            train(config, comm)
    except HpcnnError as error:
        if error.agreed or comm.size == 1:
            raise
        return abort(comm, error, str(error), error.exit_status)
    except MemoryError as error:
        remedy = "use a smaller network, batch or file, or fewer ranks a host"
        return abort(comm, error, f"not enough memory ({error}): {remedy}", 1)
    except (KeyboardInterrupt, BrokenPipeError) as stop:
        if comm.size > 1:
            leave(comm, stop)
        raise
    except Exception as error:
        return abort(comm, error, f"{type(error).__name__}: {error}", 1, traceback.format_exc())
    return 0


def _train_config(options: argparse.Namespace) -> RunConfig:
    known = (*RunConfig.__dataclass_fields__, KERAS_BACKEND)
    flags = {name: value for name, value in vars(options).items() if name in known}
    for name, value in flags.items():
        if value == "":
            raise ConfigError(f"--{name.replace('_', '-')} is empty: leave it out or give a value")
    in_file = {} if options.run is None else read_run_file(Path(options.run)).run
    resume = flags.get("resume", in_file.get("resume"))
    base: dict[str, Any] = {}
    if isinstance(resume, str):
        from hpcnn.training.checkpoint import load_checkpoint

        own = ("run_id", "resume", "max_steps", "inject", "slow", "grid", "threads", "trace", "settle_steps")
        base = {key: value for key, value in load_checkpoint(resume).config.to_dict().items() if key not in own}
        for name in ("train", "test"):
            if base[name] and name not in {**flags, **in_file} and not Path(base[name]).exists():
                raise ConfigError(
                    f"--{name} {base[name]} of the resumed run is not there from this folder: give --{name}"
                )
    if {**base, **in_file, **flags}.get("strategy") not in PIPELINES:
        base = {key: value for key, value in base.items() if key not in OF_PIPELINES}  # other strategies have no stages
    return config_from(flags, options.run, base)


def _plan(options: argparse.Namespace) -> int:
    from hpcnn.training.plan import plan_lines

    for line in plan_lines(_train_config(options)):
        print(line)
    return 0


def _predict(options: argparse.Namespace) -> int:
    from hpcnn.training.predict import predict

    found = predict(
        Path(options.run), Path(options.data), Path(options.out),
        backend=options.backend, keras_backend=options.keras_backend,
        label_column=options.label_column, header=options.header,
    )  # fmt: skip
    if found.loss is not None:
        print(f"{found.rows:,} rows, loss {found.loss:.4f}, accuracy {found.accuracy:.2%}")
    print(f"predictions: {options.out}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from hpcnn.studies.compare import run_compare

    json_path = None if options.json in (None, "-") else Path(options.json)
    runs, noise = list(map(Path, options.runs)), list(map(Path, options.noise))
    return run_compare(Path(options.baseline), runs, json_path, as_json=options.json == "-", noise=noise)


def _doctor(options: argparse.Namespace) -> int:
    config = _train_config(options)
    from hpcnn.cluster.doctor import run_doctor

    json_path = None if options.json in (None, "-") else Path(options.json)
    return run_doctor(config, json_path, as_json=options.json == "-")


def _networks(options: argparse.Namespace) -> int:
    from hpcnn.network.zoo import networks

    for network in networks():
        size = network.build((1, 28, 28), 10).size
        documented = ", ".join(f"{key} {value}" for key, value in network.history.items())
        print(
            f"{network.name}\n    {network.summary}\n    {size:,} parameters at 1x28x28 and 10 classes\n"
            f"    documented with: {documented}"
        )
    return 0


def _backends(options: argparse.Namespace) -> int:
    from hpcnn.wrappers.survey import backend_lines

    print("\n".join(backend_lines()))
    return 0
