"""The tests' hold on the private Slurm that cluster-up starts: submit a job, wait for its end, read what it left."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CLONE = HERE.parents[1]
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def obstacle() -> str | None:
    """Why no cluster can be started here, or None."""
    sbin = os.environ["PATH"] + ":/usr/sbin:/sbin"
    programs = ("slurmctld", "slurmd", "sbatch", "srun", "munged", "unshare")
    missing = [program for program in programs if shutil.which(program, path=sbin) is None]
    if missing:
        return f"Slurm isn't installed (no {', '.join(missing)}); tests/slurm/cluster-up names the packages"
    if os.geteuid() != 0:
        return "a private Slurm cluster needs root (each virtual node gets a host name and /dev/shm of its own)"
    return None


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports of 127.0.0.1 on which nothing listens."""
    for _ in range(200):
        first = random.randrange(20000, 32000)  # below Linux's ephemeral range
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, listener in enumerate(sockets):
                listener.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for listener in sockets:
                listener.close()
    raise RuntimeError(f"no {count} consecutive free ports between 20000 and 32000")


@dataclass(frozen=True)
class Job:
    """A job that has ended. `fields` are those of `scontrol show job`, `output` is its %x-%j.out."""

    number: str
    fields: dict[str, str]
    output: str

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    def __str__(self) -> str:
        return f"job {self.number}: {self.state}, exit {self.fields['ExitCode']}\n{self.output}"


class Cluster:
    """Four virtual nodes below `root`; `environment` is what a shell on the cluster has."""

    def __init__(self, root: Path) -> None:
        self.root = root
        foreign = re.compile(r"(SLURM|SBATCH|OMPI|PMI|PMIX|PRTE|HPCNN_LAUNCHER|HPCNN_SRUN)")
        self.environment = {name: value for name, value in os.environ.items() if not foreign.match(name)}

    def start(self, owner: int) -> None:
        """Raises CalledProcessError with the reason on its stderr. The cluster ends when process `owner` does."""
        port = free_ports(5)
        up = subprocess.run(
            [HERE / "cluster-up", self.root, str(port)],
            env={**self.environment, "CLUSTER_OWNER": str(owner)},
            capture_output=True,
            text=True,
            check=True,
            timeout=90,
        )
        self.environment |= dict(line.split("=", 1) for line in up.stdout.splitlines())

    def stop(self) -> None:
        subprocess.run([HERE / "cluster-down", self.root], check=True, timeout=90)

    def command(self, *words: str, folder: Path | None = None, **variables: str) -> str:
        """Standard output of a command on the cluster's front end; raises CalledProcessError."""
        return subprocess.run(
            words,
            cwd=folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def fields(self, number: str) -> dict[str, str]:
        words = self.command("scontrol", "show", "job", "--oneliner", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def run(self, folder: Path, *words: str, limit: float = 180.0, **variables: str) -> Job:
        """Submit from `folder`, poll until the job has ended (sbatch --wait polls seconds apart), read its output."""
        number = self.command("sbatch", "--parsable", *words, folder=folder, **variables).strip()
        end = time.monotonic() + limit
        while (fields := self.fields(number))["JobState"] not in ENDED:
            if time.monotonic() > end:
                self.command("scancel", number)
            if time.monotonic() > end + 30:
                break
            time.sleep(0.2)
        output = Path(fields["StdOut"])
        return Job(number, fields, output.read_text() if output.exists() else "")
