"""How fast each backend of hpcnn is: beside its framework's own plain script, beside the other backends, on two ranks.

    bash env/with.sh torch python jobs/benchmarks/backend_speed.py            (all sections, about 45 minutes)
    bash env/with.sh torch python jobs/benchmarks/backend_speed.py --quick    (a few minutes, to see that it works)

It writes results/benchmarks/backend_speed.json and backend_speed.md. A section that runs again replaces what it found
before. Let nothing else run on the machine meanwhile. programs.py says what is timed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contest import REPOSITORY, Contest, Contestant, Ratio, hold
from programs import alone_on, hpcnn, on_two_cores, parse, plain, read_hpcnn, read_plain, settings, train_files
from report import Report

SECTIONS = ("single", "ranks", "switches", "classic")
TARGET = 0.95
EXPLANATION = """\
*plain* is the framework's own script in `jobs/plain/`, tuned (`--tuned`: with glibc's allocator kept from returning
memory between steps, as hpcnn keeps it, and what else speeds that framework up); Keras' is compile and fit.
TensorFlow's is timed with one tf.function a step, and with all steps of an epoch inside one, which leaves nothing for a
program to do between steps: no sum over ranks, no mask of a known row, no line in a log.
*two alone*: two processes of one thread that do not talk, each on half of the batch. A switch is one of
`[backend.NAME]`, a flag of hpcnn, or a variable of the framework's.
"""


@dataclass(frozen=True)
class Peer:
    """A backend and its plain script, with the flags that choose it."""

    flags: tuple[str, ...]
    script: str
    tuning: tuple[str, ...] = ("--tuned",)
    rewritten: str = ""
    """What --tuned does besides where that is another program than a loop over steps: timed, and no target."""


PEERS = {
    "torch": Peer(("--backend", "torch"), "jobs/plain/torch_script.py"),
    "tensorflow": Peer(
        ("--backend", "tensorflow"), "jobs/plain/tensorflow_script.py", ("--tuned", "allocator"), "an epoch a function"
    ),
    "keras": Peer(("--backend", "keras"), "jobs/plain/keras_script.py"),
}

CLASSIC = {
    "keras on theano": Peer(("--backend", "keras", "--keras-backend", "theano"), "jobs/plain/keras_theano_script.py"),
    "lasagne": Peer(("--backend", "lasagne"), "jobs/plain/lasagne_script.py"),
    "caffe": Peer(("--backend", "caffe"), "jobs/plain/caffe_script.py"),
}
QUICK = ("torch", "lasagne", "caffe")
"""Whose contests --quick holds where each has one of its own."""
IN_CLASSIC = ("bash", "env/with.sh", "caffe", "python3")
"""What stands for python in commands of the classic environment."""

SWITCHES = {
    "torch": ("--backend", "torch"),
    "torch, channels_last = false": ("--backend", "torch", "--backend-option", "channels_last=false"),
    "torch, system allocator": ("--backend", "torch", "--allocator", "system"),
    "torch, compile": ("--backend", "torch", "--backend-option", "compile=true"),
    "tensorflow": ("--backend", "tensorflow"),
    "tensorflow, jit_compile (XLA)": ("--backend", "tensorflow", "--backend-option", "jit_compile=true"),
    "tensorflow, deterministic = false": ("--backend", "tensorflow", "--backend-option", "deterministic=false"),
    "tensorflow, system allocator": ("--backend", "tensorflow", "--allocator", "system"),
    "tensorflow, function = false": ("--backend", "tensorflow", "--backend-option", "function=false"),
    "keras on tensorflow": ("--backend", "keras"),
    "keras on torch": ("--backend", "keras", "--keras-backend", "torch"),
    "keras on jax": ("--backend", "keras", "--keras-backend", "jax"),
}


def some(peers: dict[str, Peer], options: argparse.Namespace) -> dict[str, Peer]:
    return {name: peer for name, peer in peers.items() if not options.quick or name in QUICK}


def single(options: argparse.Namespace) -> Iterator[Contest]:
    """One process on all cores: each backend beside its framework's plain script, and all of them in one contest."""
    for batch in options.batches or (64, 250, 1000):
        sizes = batch, options.threads, options.epochs
        contestants, ratios = [], []
        for name, peer in PEERS.items():
            ours, theirs = hpcnn(*sizes, "single", *peer.flags), plain(peer.script, *sizes, *peer.tuning)
            contestants.append(Contestant(f"hpcnn, {name}", (ours,), read_hpcnn, options.rows))
            contestants.append(Contestant(f"plain {name}", (theirs,), read_plain, options.rows))
            ratios.append(Ratio(f"hpcnn, {name}", f"plain {name}", TARGET))
            if peer.rewritten:
                other = f"plain {name}, {peer.rewritten}"
                contestants.append(
                    Contestant(other, (plain(peer.script, *sizes, "--tuned"),), read_plain, options.rows)
                )
                ratios.append(Ratio(f"hpcnn, {name}", other))
        own = settings(options, batch=batch, ranks=1, threads=options.threads)
        yield Contest(f"one process, batch {batch}", own, tuple(contestants), tuple(ratios))


def ranks(options: argparse.Namespace) -> Iterator[Contest]:
    """Two ranks of one thread, each on a core, beside two processes that do not talk."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("section ranks needs two cores: left out")
        return
    for rows in options.batches or (64, 250):
        own = settings(options, batch=2 * rows, ranks=2, threads=1)
        for name, peer in some(PEERS, options).items():
            together = on_two_cores(hpcnn(2 * rows, 1, options.epochs, "data", *peer.flags))
            alone = alone_on(cores, rows, options.epochs, *peer.flags)
            yield Contest(
                f"{name}, two ranks, {rows} rows each",
                own,
                (
                    Contestant("hpcnn", (together,), read_hpcnn, options.rows),
                    Contestant("two alone", alone, read_hpcnn, options.rows // 2),
                ),
                (Ratio("hpcnn", "two alone", TARGET),),
            )


def switches(options: argparse.Namespace) -> Iterator[Contest]:
    """What makes a backend faster or slower, one switch at a time, in one contest."""
    batch = (options.batches or (250,))[-1]
    sizes = batch, options.threads, options.epochs
    contestants = [
        Contestant(name, (hpcnn(*sizes, "single", *flags),), read_hpcnn, options.rows)
        for name, flags in SWITCHES.items()
    ]
    # oneDNN is switched by a variable that TensorFlow reads as it is imported
    without = ("env", "TF_ENABLE_ONEDNN_OPTS=0", *hpcnn(*sizes, "single", "--backend", "tensorflow"))
    contestants.append(Contestant("tensorflow, without oneDNN", (without,), read_hpcnn, options.rows))
    ratios = [Ratio(one.name, one.name.partition(",")[0]) for one in contestants if "," in one.name]
    own = settings(options, batch=batch, ranks=1, threads=options.threads)
    yield Contest(f"switches, batch {batch}", own, tuple(contestants), tuple(ratios))


def classic_pins() -> list[str]:
    """Of its frameworks: a report's own versions are those of the environment that writes it."""
    pins = (REPOSITORY / "env" / "constraints-classic.txt").read_text(encoding="utf-8").split()
    names = ("theano", "lasagne", "keras", "brocolli-caffe", "numpy")
    return [pin for pin in pins if pin.partition("==")[0] in names]


def classic(options: argparse.Namespace) -> Iterator[Contest]:
    """One process on all cores: the backends of the classic environment beside their frameworks' own plain scripts."""
    for batch in options.batches or (64, 250):
        sizes = batch, options.threads, options.epochs
        own = settings(options, batch=batch, ranks=1, threads=options.threads, classic=classic_pins())
        for name, peer in some(CLASSIC, options).items():
            ours, theirs = hpcnn(*sizes, "single", *peer.flags), plain(peer.script, *sizes, *peer.tuning)
            yield Contest(
                f"{name}, one process, batch {batch}",
                own,
                (
                    Contestant("hpcnn", ((*IN_CLASSIC, *ours[1:]),), read_hpcnn, options.rows),
                    Contestant("plain", ((*IN_CLASSIC, *theirs[1:]),), read_plain, options.rows),
                ),
                (Ratio("hpcnn", "plain", TARGET),),
            )


def main() -> None:
    sizes = {"rows": (256, 3000), "rounds": (1, 7), "epochs": (2, 4), "batches": ([64], None)}
    options = parse("Measure the speed of hpcnn's backends.", SECTIONS, sizes)
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out / "backend_speed.json", "Speed of the backends", EXPLANATION, tuple(PEERS))
    makers = {"single": single, "ranks": ranks, "switches": switches, "classic": classic}
    with tempfile.TemporaryDirectory() as folder:
        files = train_files(options, Path(folder))
        for section in options.section or SECTIONS:
            for contest in makers[section](options):
                report.add(contest.name, hold(contest, options.rounds, files))
    print(report.path.with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
