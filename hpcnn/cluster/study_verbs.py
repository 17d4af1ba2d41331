"""The verbs `study` and `submit` as the command line has them; what they do is imported when they run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hpcnn.cluster.slurm import Shape
from hpcnn.config_sources import add_flags
from hpcnn.errors import ConfigError


def add_verbs(verbs: Any) -> None:
    """`verbs`: what argparse's add_subparsers returned."""
    study = verbs.add_parser(
        "study", help="a matrix of runs from one file: here or on a cluster, then tables and plots"
    )
    actions = study.add_subparsers(metavar="ACTION", required=True, parser_class=type(study))
    run = actions.add_parser("run", help="run all cells that are not finished, one after another; goes on where it was")
    _add_file(run, "STUDY.toml", "what to run; jobs/studies has ready ones")
    run.add_argument("--ranks", type=int, metavar="N", help="only cells of so many ranks")
    run.add_argument("--threads", type=int, metavar="N", help="only cells of so many threads a rank")
    run.add_argument("--repeat", type=int, metavar="N", help="only this repeat, from 0")
    run.set_defaults(verb=_run)
    submit = actions.add_parser("submit", help="run them as Slurm job arrays, and make the report when they have ended")
    _add_file(submit, "STUDY.toml", "what to run; its [slurm] is overridden by flags")
    _add_shape(submit, nodes=False)
    submit.add_argument("--no-report", action="store_true", help="submit no job that makes the report")
    submit.set_defaults(verb=_submit_study)
    status = actions.add_parser("status", help="the state of every cell, and of the jobs that were submitted")
    _add_file(status, "STUDY", "a study's file or folder")
    status.set_defaults(verb=_status)
    report = actions.add_parser("report", help="tables, plots and one page from the cells that are done")
    _add_file(report, "STUDY", "a study's file or folder")
    report.set_defaults(verb=_report)

    job = verbs.add_parser("submit", help="a job script of jobs/, with its shape by flags, to Slurm")
    job.add_argument("job", metavar="JOB", help="its name, as data_parallel, or a script")
    _add_shape(job)
    job.add_argument(
        "--sbatch", action="append", default=[], metavar="FLAG", help="another flag of sbatch, as --sbatch=--exclusive"
    )
    training = job.add_argument_group("for the job's `hpcnn train`, over what the script says")
    add_flags(training)
    job.set_defaults(verb=_submit_job)


def _add_file(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument("study", metavar=name, help=text)


def _add_shape(parser: argparse.ArgumentParser, *, nodes: bool = True) -> None:
    if nodes:
        parser.add_argument("--nodes", type=int, metavar="N", help="nodes (default: the script's)")
        parser.add_argument("--cpus-per-task", type=int, metavar="N", help="cores, and threads, of a rank")
    parser.add_argument("--ntasks-per-node", type=int, metavar="N", help="ranks a node")
    parser.add_argument("--partition", default="", help="where (default: the site's, see env/site.sh)")
    parser.add_argument("--account", default="", help="whose time (default: the site's, see env/site.sh)")
    parser.add_argument("--time", default="", metavar="H:M:S", help="limit (default: the script's)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted, and submit nothing")


def _run(options: argparse.Namespace) -> int:
    from hpcnn.cluster.study_run import Some, run_study

    return run_study(Path(options.study), Some(options.ranks, options.threads, options.repeat))


def _submit_study(options: argparse.Namespace) -> int:
    from hpcnn.cluster.study_submit import submit_study
    from hpcnn.studies.study_file import Slurm

    asked = Slurm(
        ntasks_per_node=_positive("--ntasks-per-node", options.ntasks_per_node),
        partition=options.partition, account=options.account, time=options.time,
    )  # fmt: skip
    return submit_study(Path(options.study), asked=asked, report=not options.no_report, dry_run=options.dry_run)


def _status(options: argparse.Namespace) -> int:
    from hpcnn.cluster.study_status import status_lines

    for line in status_lines(Path(options.study)):
        print(line)
    return 0


def _report(options: argparse.Namespace) -> int:
    from hpcnn.studies.study_file import read_study
    from hpcnn.studies.study_report import write_report

    path = Path(options.study)
    for written in write_report(path if path.is_dir() else read_study(path).out):
        print(written)
    return 0


def _submit_job(options: argparse.Namespace) -> int:
    from hpcnn.cluster.submit import submit_job, train_flags

    counts = {
        name: _positive("--" + name.replace("_", "-"), getattr(options, name))
        for name in ("nodes", "ntasks_per_node", "cpus_per_task")
    }
    shape = Shape(**counts, partition=options.partition, account=options.account, time=options.time)
    return submit_job(options.job, shape, train_flags(vars(options)), options.sbatch, dry_run=options.dry_run)


def _positive(flag: str, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise ConfigError(f"{flag} {value} is out of range: it must be at least 1")
    return value
