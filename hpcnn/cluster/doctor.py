"""`hpcnn doctor`: what a training would meet here, alone or on the ranks of a launcher; rank 0 speaks.

Unlike a training it goes on where one would be refused, and says all that it finds.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcnn.cluster.endings import abort
from hpcnn.cluster.facts import Facts, Threads, clock_ahead, gather_facts, local_rank
from hpcnn.cluster.findings import Finding, render, to_dict, worst
from hpcnn.cluster.imports import Loading
from hpcnn.cluster.judge import judge_clocks, judge_launch, judge_mpi, judge_versions
from hpcnn.cluster.judge_cores import judge_cores
from hpcnn.cluster.judge_gpus import judge_gpus
from hpcnn.cluster.judge_installed import judge_backend, judge_horovod, judge_sessions
from hpcnn.cluster.launch import SECONDS_TO_SPEAK, is_first_world, launched_together, load_mpi
from hpcnn.cluster.measure import link_finding, measure_links, measure_sums, sleep_until_all, sums_finding
from hpcnn.cluster.shared_folder import judge_folder
from hpcnn.config import RunConfig
from hpcnn.data.agree import Alone
from hpcnn.errors import BackendError, ConfigError, HpcnnError, LaunchError
from hpcnn.records.files import write_json

LIMIT_SECONDS = 240.0
"""Ranks that cannot reach each other wait for ever in their first message."""


def run_doctor(config: RunConfig, json_path: Path | None = None, *, as_json: bool = False) -> int:
    """The verb, on every rank; returns the exit status: 1 where a finding is an error, else 0.

    `config`: the training that is meant, of which backend, threads and results' folder are looked at.
    """
    cores = tuple(sorted(os.sched_getaffinity(0)))
    watch = Watch(LIMIT_SECONDS)
    try:
        return _examine(config, cores, watch, json_path, as_json)
    finally:
        watch.end()


class Watch:
    """Ends this process where it is stuck, and says in what: MPI itself waits without a word."""

    def __init__(self, seconds: float) -> None:
        self.doing = "starting"
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        self._timer.cancel()

    def _give_up(self) -> None:
        print(
            f"hpcnn: doctor on {socket.gethostname()}: {self.doing} took more than {self._seconds:g} s: ranks do not "
            "reach each other, or one has died; a firewall between hosts, or the wrong network interface: export "
            "OMPI_MCA_btl_tcp_if_include=NAME (ip -br address lists them)",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        time.sleep(SECONDS_TO_SPEAK)
        os._exit(1)


def _examine(config: RunConfig, cores: tuple[int, ...], watch: Watch, json_path: Path | None, as_json: bool) -> int:
    loading, findings = _load_backend(config)
    watch.doing = "MPI's start"
    try:
        comm = load_mpi().COMM_WORLD.Clone()
    except LaunchError as error:
        together = launched_together(os.environ)
        if together and together.rank:
            return 1  # the first rank says it, and alone goes on
        findings.append(_missing_mpi(error))
        comm = Alone()
    try:
        ranks = _facts_of_all(config, comm, cores, loading, watch)
        if not is_first_world(os.environ, [facts.place for facts in ranks]):
            time.sleep(SECONDS_TO_SPEAK)  # a world beside the first; a launcher may end all at the first that fails
            return 1
        findings += _findings(config, comm, ranks, watch)
        if comm.rank == 0:
            _tell(findings, ranks, json_path, as_json)
        if comm.size > 1:
            sleep_until_all(comm)  # a launcher ends all at the first process that fails, also one that still speaks
        return int(worst(findings) == "error")
    except HpcnnError as error:
        if error.agreed or comm.size == 1:
            raise
        return abort(comm, error, str(error), error.exit_status)
    except Exception as error:
        return abort(comm, error, f"{type(error).__name__}: {error}", 1, traceback.format_exc())
    finally:
        if loading:
            loading.end()


def _missing_mpi(error: LaunchError) -> Finding:
    words, _, remedy = str(error).rpartition(": ")
    return Finding("error", "mpi", words, "every training starts MPI, also one of a single process", remedy)


def _load_backend(config: RunConfig) -> tuple[Loading | None, list[Finding]]:
    """Begun before MPI, on one rank a host; and what is missing to do so."""
    from hpcnn.wrappers.registry import check_backend

    try:
        check_backend(config.backend, config.backend_option)
    except BackendError as error:
        words, _, remedy = str(error).partition(": ")
        return None, [Finding("error", "backend", words, "a training with it would be refused", remedy)]
    mine = local_rank(os.environ)
    together = launched_together(os.environ)
    first = mine == 0 if mine is not None else not together or together.rank == 0
    return (Loading(config.backend, config.backend_option, config.threads or 1) if first else None), []


def _facts_of_all(
    config: RunConfig, comm: Any, cores: tuple[int, ...], loading: Loading | None, watch: Watch
) -> list[Facts]:
    watch.doing = "the first message among all ranks"
    threads = _threads(config, comm)
    ahead = clock_ahead(comm)
    watch.doing = f"loading {config.backend}"
    imported = loading.result() if loading else None
    facts = gather_facts(os.environ, cores, threads, ahead, imported)
    if comm.size > 1:
        sleep_until_all(comm)  # what loads wants the core
    ranks: list[Facts] = comm.allgather(facts)
    return ranks


def _threads(config: RunConfig, comm: Any) -> Threads:
    from hpcnn.training.process import decide_threads

    try:
        decided = decide_threads(config.threads, os.environ, comm)
    except ConfigError as error:
        return Threads(error=str(error))
    return Threads(decided.count, decided.source)


def _findings(config: RunConfig, comm: Any, ranks: Sequence[Facts], watch: Watch) -> list[Finding]:
    """Collective; the same on every rank."""
    hosts = [facts.place.host for facts in ranks]
    findings = [
        *judge_mpi(ranks), *judge_launch(ranks, config.strategy), *judge_cores(ranks), *judge_versions(ranks),
        *judge_backend(ranks), *judge_horovod(ranks), *judge_gpus(ranks, config.device),
        *judge_clocks(ranks), *judge_sessions(ranks),
    ]  # fmt: skip
    watch.doing = f"looking for rank 0's file in {config.out}"
    findings.append(judge_folder(comm, Path(config.out), hosts))
    if comm.size > 1:
        watch.doing = "measuring messages"
        findings += map(link_finding, measure_links(comm, hosts))
        findings.append(sums_finding(measure_sums(comm)))
    return findings


def _tell(findings: Sequence[Finding], ranks: Sequence[Facts], json_path: Path | None, as_json: bool) -> None:
    document = to_dict(findings, [dataclasses.asdict(facts) for facts in ranks])
    host = ranks[0].place.host
    title = f"hpcnn doctor on {host}" if len(ranks) == 1 else f"hpcnn doctor on {len(ranks)} ranks, rank 0 on {host}"
    print(json.dumps(document, indent=2) if as_json else render(title, findings), flush=True)
    if json_path is not None:
        write_json(json_path, document)
