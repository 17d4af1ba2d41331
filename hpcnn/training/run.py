"""A run from its start to its last file: what `hpcnn train` does on every rank, after the world is open."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcnn.config import RunConfig
from hpcnn.data.agree import attempt
from hpcnn.errors import ConfigError, HpcnnError
from hpcnn.records import manifest
from hpcnn.records.evidence import SeenReplica, SeenRow
from hpcnn.records.heartbeat import Heartbeat
from hpcnn.records.phases import PhaseClock
from hpcnn.records.run_folder import LossRow, RankTimes, RunFolder, run_name
from hpcnn.records.state import read_state
from hpcnn.training.checkpoint import NAME, save_checkpoint
from hpcnn.training.describe import HostFacts, run_facts, start_lines
from hpcnn.training.evaluate import Evaluation, all_rows, gathered
from hpcnn.training.handover import Given, Trained
from hpcnn.training.layer_costs import measure_layers
from hpcnn.training.loop import Trainer
from hpcnn.training.prepare import Prepared, prepare
from hpcnn.training.process import Threads, attempt_threads, set_allocator
from hpcnn.training.progress import say, step_line
from hpcnn.training.summary import epoch_means, summary_lines
from hpcnn.training.traced import write_trace

LAYER_ROWS = 64
"""Rows of the measured pass of layers.csv, or the rank's rows of a batch where those are fewer."""


def train(config: RunConfig, comm: Any, given: Given | None = None) -> Trained:
    """Collective. Runs `config`, on what a caller in this process gives beside it, and returns what it came to."""
    given = given or Given()
    _same_settings(config, comm)
    clock = PhaseClock(begin=given.begin, trace=config.trace)
    allocator = set_allocator(config.allocator)
    threads = attempt_threads(config.threads, comm)
    try:
        prepared = prepare(config, comm, clock, threads.count, given)
    except HpcnnError as error:
        error.agreed = True  # prepare raises the same on all ranks
        raise
    run = Run(config, comm, clock, prepared, threads, allocator, given.command)
    try:
        return run.carry_out()
    except BaseException as error:
        run.end_badly(error)
        raise


def _same_settings(config: RunConfig, comm: Any) -> None:
    """Collective. A script may give each rank other settings, with which they would wait for each other for ever."""
    first: dict[str, Any] = comm.bcast(config.to_dict())

    def check() -> None:
        for name, value in config.to_dict().items():
            if value != first[name]:
                raise ConfigError(
                    f"{name} is {first[name]!r} on rank 0 and {value!r} on rank {comm.rank}: give all ranks the same"
                )

    attempt(comm, check)


class Run:
    """One run on one rank; `folder` is held by rank 0 alone, which writes for all."""

    def __init__(
        self,
        config: RunConfig,
        comm: Any,
        clock: PhaseClock,
        prepared: Prepared,
        threads: Threads,
        allocator: dict[str, Any],
        command: Sequence[str] | None = None,
    ) -> None:
        self.config, self.comm, self.clock, self.prepared = config, comm, clock, prepared
        self.threads, self.allocator = threads, allocator
        self.command = list(command or manifest.command_line())
        self.folder = self._create_folder()
        self.path: Path = comm.bcast(self.folder.path if self.folder else None)
        self.heartbeat = Heartbeat(self.path, comm.rank)
        self.heartbeat.detail = lambda: prepared.executor.doing
        self.heartbeat.start()
        self.log: list[str] = []
        self.rows: list[LossRow] = []
        self.seen_rows: list[SeenRow] = []
        self.seen_replicas: list[SeenReplica] = []

    def _create_folder(self) -> RunFolder | None:
        config, architecture = self.config, self.prepared.architecture
        name = run_name(architecture.name, config.backend_label, config.strategy, self.comm.size, config.short_hash())
        return attempt(
            self.comm,
            lambda: RunFolder.create(Path(config.out), name, config.run_id) if self.comm.rank == 0 else None,
        )

    def carry_out(self) -> Trained:
        """Train, evaluate, and leave every file."""
        self._describe()
        self.trainer = Trainer(self.prepared, self.comm, self.clock, self.heartbeat)
        self.rows = self.trainer.rows
        self.trainer.fit(self._after_epoch)
        tested = self._test()
        self._save_checkpoint()
        generated = self._generated()
        if self.folder is not None:
            with self.clock.during("other"):
                rows = min(LAYER_ROWS, max(1, self.config.global_batch // self.comm.size))
                prepared = self.prepared
                self.folder.write_generated(generated)
                self.folder.write_layers(measure_layers(prepared.build, prepared.architecture, rows, self.config.seed))
        self._finish(tested)
        trained = self._handed_over(tested)
        self.prepared.close()
        return trained

    def _handed_over(self, tested: Evaluation | None) -> Trained:
        """Rank 0's history on all ranks: it alone has gradient norms; its checkpoint, where ranks hold parts."""
        rows, seconds = self.comm.bcast((self.rows, self.clock.wall_seconds()))
        checkpoint, model = self.trainer.checkpoint(), None
        if self.prepared.grid.pp > 1:
            checkpoint = self.comm.bcast(checkpoint)
        elif len(self.prepared.parts) == 1:
            (part,) = self.prepared.parts.values()
            model = part.model
        assert checkpoint is not None
        return Trained(
            folder=self.path, wall_seconds=seconds, history=tuple(rows), test=tested, checkpoint=checkpoint, model=model
        )

    def _generated(self) -> dict[str, str]:
        """Collective. Files that wrappers made, of all segments; a cut network's names say which segment's."""
        parts, whole = self.prepared.parts, len(self.prepared.layout.segments) == 1
        mine = {
            name if whole else f"segment{number}_{name}": text
            for number, part in parts.items()
            for name, text in part.model.files().items()
        }
        return {name: text for files in self.comm.allgather(mine) for name, text in files.items()}

    def _describe(self) -> None:
        """What runs, printed before the first step and kept in run.json and results.log."""
        hosts = self.comm.gather(HostFacts(self.threads, manifest.machine()))
        if self.folder is None:
            return
        self.folder.write_manifest(
            run=self.folder.run,
            state="running",
            start=manifest.timestamp(ago=self.clock.wall_seconds()),
            command=self.command,
            **run_facts(self.config, self.prepared, hosts, self.allocator),
        )
        for line in start_lines(self.config, self.prepared, hosts):
            self._say(line)

    def _say(self, line: str) -> None:
        self.log.append(line)
        say(line)

    def _after_epoch(self) -> None:
        """Files as they stand at an epoch's end, so that a run that is killed keeps what it had."""
        every = self.config.checkpoint_every
        if every and self.trainer.epoch % every == 0:
            self._save_checkpoint()
        times = self._gather_times()
        for rows, replica in self.comm.gather(self.trainer.take_evidence()) or []:
            self.seen_rows += rows
            self.seen_replicas.append(replica)
        if self.folder is None:
            return
        with self.clock.during("other"):
            row = self.rows[-1]
            validation = "" if row.validation_loss is None else (
                f", validation loss {row.validation_loss:.4f}, accuracy {row.validation_accuracy:.2%}"
            )  # fmt: skip
            loss, accuracy = epoch_means(self.rows, self.prepared.samples)
            say(f"epoch {row.epoch}: loss {loss:.4f}, accuracy {accuracy:.2%}{validation}")
            self._write_tables(times)

    def _write_tables(self, times: Sequence[RankTimes]) -> None:
        if self.folder is not None:
            self._write_losses()
            self.folder.write_timing(times)
            self.folder.write_evidence(self.seen_rows, self.seen_replicas)

    def _write_losses(self) -> None:
        if self.folder is not None:
            self.folder.write_losses(self.rows)
            self.folder.write_log([*self.log, *map(step_line, self.rows)])

    def _test(self) -> Evaluation | None:
        """Loss, accuracy and predictions of the test file, where there is one."""
        test = self.prepared.test
        if test is None:
            return None
        found = gathered(self.trainer.evaluate("test", test, all_rows(test)), self.comm)
        if self.folder is not None:
            self.folder.write_predictions(found.predicted.tolist())
        return found

    def _save_checkpoint(self) -> None:
        trainer = self.trainer
        self.heartbeat.doing("checkpoint", trainer.epoch, trainer.step)
        with self.clock.during("checkpoint"):
            checkpoint = trainer.checkpoint()
            if self.folder is not None and checkpoint is not None:
                save_checkpoint(self.path / NAME, checkpoint)

    def _gather_times(self) -> list[RankTimes]:
        """Collective. Every rank's times on rank 0, an empty list elsewhere."""
        mine = RankTimes(
            self.comm.rank, socket.gethostname(), self.clock.wall_seconds(), self.clock.rows(),
            self.clock.arrivals.lateness(),
        )  # fmt: skip
        return self.comm.gather(mine) or []

    def _finish(self, tested: Evaluation | None) -> None:
        self.heartbeat.doing("finish", self.trainer.epoch, self.trainer.step)
        self.clock.switch("other")
        with self.clock.collective():
            self.comm.Barrier()
        self.trainer.clocks.measure(self.comm)
        self.clock.resolve_waits(self.comm, self.trainer.clocks)
        times = self._gather_times()
        if self.config.trace:
            write_trace(self.folder, self.prepared, self.comm, self.clock, self.trainer.clocks)
        if self.folder is not None:
            self._write_tables(times)
            self.folder.write_manifest(
                state="completed",
                end=manifest.timestamp(),
                wall_seconds=[one.wall_seconds for one in times],
                lateness=[one.lateness._asdict() for one in times],
                epochs=self.trainer.epoch,
                steps=self.trainer.step,
                test=None
                if tested is None
                else {"rows": tested.rows, "loss": tested.loss, "accuracy": tested.accuracy},
            )
            for line in summary_lines(self.rows, times, tested, self.trainer.samples_before):
                say(line)
            say(f"results: {self.path}")
        self.heartbeat.end("completed")

    def end_badly(self, error: BaseException) -> None:
        """Last words. What all ranks agree on is written into run.json by rank 0; else this rank's heartbeat tells.

        A run whose last file was written has completed, whatever stops the process then."""
        if self.folder is not None and self.folder.manifest.get("state") == "completed":
            self.heartbeat.end("completed")
            return
        if doing := self.prepared.executor.doing:
            error.add_note(doing)
        words = str(error) if isinstance(error, HpcnnError) else f"{type(error).__name__}: {error}"
        state = "failed"
        if isinstance(error, (KeyboardInterrupt, BrokenPipeError)):
            reason = "a closed standard output" if isinstance(error, BrokenPipeError) else str(error) or "Ctrl-C"
            state, words = "stopped", f"stopped by {reason}"
            with contextlib.suppress(HpcnnError):
                # the launcher stops the others when one fails, whose words are out
                error.told = read_state(self.path).state == "failed"  # type: ignore[union-attr]
        self.heartbeat.end(state, words)
        known_to_all = getattr(error, "agreed", False) or self.comm.size == 1
        if self.folder is None:
            return
        # What cannot be written now either is told by the error itself.
        with contextlib.suppress(HpcnnError):
            if self.rows:
                self._write_losses()
        with contextlib.suppress(HpcnnError):
            if known_to_all:
                self.folder.write_manifest(state=state, words=words, end=manifest.timestamp())
