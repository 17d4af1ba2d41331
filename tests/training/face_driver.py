"""Run alone or under mpirun by test_face.py: what the face promises, in one start of the ranks.

Usage: face_driver.py FOLDER OUT. FOLDER has train.csv, test.csv and little.toml. Rank 0 prints a JSON object.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hpcnn import TorchWrapper, get_wrapper
from hpcnn.errors import HpcnnError
from hpcnn.network import Architecture, Dense, Flatten, ReLU, Softmax

SHAPE, CLASSES = (1, 28, 28), 10
LAYERS = [Flatten(), Dense(units=8), ReLU(), {"type": "dense", "units": 10}, Softmax()]


def rows_of(csv: Path) -> tuple[Any, Any]:
    table = np.loadtxt(csv, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(int)


def digest(network: Any) -> str:
    return hashlib.blake2b(network._checkpoint.weights.tobytes()).hexdigest()


class Bench:
    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self.out = folder, out
        self.train, self.test = folder / "train.csv", folder / "test.csv"

    def network(self, architecture: Any = None, **settings: Any) -> Any:
        network = TorchWrapper(**{"seed": 3, "out": str(self.out), "progress": False, "threads": 1, **settings})
        network.build_model(architecture or self.folder / "little.toml", SHAPE, CLASSES)
        network.compile(optimizer="sgd", learning_rate=0.05, momentum=0.9)
        return network

    def refusal(self, work: Any) -> str:
        try:
            work()
        except HpcnnError as error:
            return f"{type(error).__name__}: {error}" + ("" if error.agreed else " (on this rank alone)")
        return "nothing was refused"


def trainings(bench: Bench) -> dict[str, Any]:
    """Two epochs at a stretch, one by one, through a file, and from arrays."""
    results = {}
    whole = bench.network(test=str(bench.test))
    trained = whole.train(bench.train, 31, 2, validation_fraction=0.1, run_id="whole")
    halves = bench.network()
    first = halves.train(bench.train, 31, 1, validation_fraction=0.1)
    second = halves.train(bench.train, 31, 1, validation_fraction=0.1)
    half = bench.network()
    half.train(bench.train, 31, 1, validation_fraction=0.1)
    half.save(bench.out / "half.h5")
    loaded = get_wrapper("torch", out=str(bench.out), progress=False, threads=1)
    loaded.load(bench.out / "half.h5")
    rest = loaded.train(bench.train, 31, 1, validation_fraction=0.1)
    x, y = rows_of(bench.train)
    arrays = bench.network()
    of_arrays = arrays.train((x, y), 31, 2, test=rows_of(bench.test), validation_fraction=0.1, run_id="arrays")
    results["weights"] = [digest(one) for one in (whole, halves, loaded, arrays)]
    results["histories"] = [trained.history, first.history + second.history, rest.history, of_arrays.history]
    results["tests"] = [[one.test.loss, one.test.accuracy] for one in (trained, of_arrays)]
    results["folders"] = [str(one.folder) for one in (trained, first, second)]
    results["wall_seconds"] = trained.wall_seconds
    evaluated = whole.evaluate(bench.test)
    results["evaluated"] = [evaluated.loss, evaluated.accuracy, evaluated.rows]
    results["predicted"] = [
        whole.predict(rows).tolist()
        for rows in (bench.test, rows_of(bench.test)[0], rows_of(bench.test)[0].reshape(-1, *SHAPE))
    ]
    loaded.build_model(LAYERS, SHAPE, CLASSES)
    results["forgotten"] = bench.refusal(lambda: loaded.evaluate(bench.test))
    moments = halves._checkpoint
    halves.compile(optimizer="adam", decay=0.1)
    results["anew"] = [moments.updates, halves._checkpoint.updates, sorted(halves._checkpoint.optimizer)]
    third = halves.train(bench.train, 31, 1)
    results["third"] = [third.history[0].epoch, third.history[0].step]
    return results


def architectures(bench: Bench) -> dict[str, list[float]]:
    given = {
        "list": LAYERS,
        "Architecture": Architecture("own", SHAPE, (Flatten(), Dense(units=8), ReLU(), Dense(units=10), Softmax())),
        "file": str(bench.folder / "little.toml"),
        "name": "cnn2d_2layer_fullconnected_2layer",
    }
    losses = {}
    for name, architecture in given.items():
        network = bench.network(architecture)
        losses[name] = [row.train_loss for row in network.train(bench.train, 200, 1, max_steps=2).history]
    return losses


def refusals(bench: Bench) -> dict[str, str]:
    x, y = rows_of(bench.train)
    network = bench.network(LAYERS)
    fresh = TorchWrapper(out=str(bench.out))
    return {
        name: bench.refusal(work)
        for name, work in {
            "setting": lambda: TorchWrapper(sed=1),
            "line": lambda: TorchWrapper(epochs=3),
            "value": lambda: TorchWrapper(threads=0),
            "option": lambda: TorchWrapper(backend_option={"channel_last": True}),
            "compile": lambda: network.compile(optimiser="adam"),
            "rate": lambda: network.compile(learning_rate=-1),
            "too early": lambda: fresh.train(bench.train, 31, 1),
            "untrained": lambda: network.evaluate(bench.test),
            "unsaved": lambda: network.save(bench.out / "x.h5"),
            "network": lambda: network.build_model("resnet", SHAPE, CLASSES),
            "shape": lambda: network.build_model(LAYERS, (28, 28), CLASSES),
            "classes": lambda: network.build_model(LAYERS, SHAPE, 7),
            "layers": lambda: network.build_model([3], SHAPE, CLASSES),
            "batch": lambda: network.train(bench.train, 0, 1),
            "epochs": lambda: network.train(bench.train, 31, "one"),
            "rows": lambda: network.train(bench.folder / "nowhere.csv", 31, 1),
            "strings": lambda: network.train([["a"]], 31, 1),
            "columns": lambda: network.train((x[:, 1:], y), 31, 1),
            "labels": lambda: network.train((x, y[1:]), 31, 1),
            "no labels": lambda: network.train(x, 31, 1),
            "label": lambda: network.train((x, y + 1), 31, 1),
            "number": lambda: network.train((x * np.nan, y), 31, 1),
            "checkpoint": lambda: network.load(bench.out / "nowhere.h5"),
            "on rank 1": lambda: network.train((x + network.rank, y), 31, 1) if network._comm.size > 1 else None,
        }.items()
    }


def main(folder: Path, out: Path) -> None:
    bench = Bench(folder, out)
    results = {**trainings(bench), "losses": architectures(bench), "refusals": refusals(bench)}
    text = json.dumps(results, default=vars)
    comm = bench.network()._comm
    texts = comm.allgather(text)
    if comm.rank == 0:
        print("\n" + json.dumps({**results, "alike": len(set(texts)) == 1}, default=vars))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
