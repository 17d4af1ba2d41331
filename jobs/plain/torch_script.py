"""The PyTorch training loop that a practitioner would write: the outside baseline. It imports no hpcnn.

    python jobs/plain/torch_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned
    mpirun -np 2 python jobs/plain/torch_script.py --ddp --threads 1 --train data/train.csv

The CSV has a header and its label in the last column. --replay FILE.npz follows another program's training exactly:
parameter_I (initial values of the I-th of `model.parameters()`), rows_S (data rows, from 0, of the global batch of step
S) and mask_S_D (what the output of the D-th dropout's input is multiplied by in step S).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def cnn2d_3layer_fullconnected_3layer() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25),
        nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.25),
        nn.Linear(128, 10),
    )  # fmt: skip
    return initialised(model, lambda kernel: nn.init.kaiming_uniform_(kernel, nonlinearity="linear"))  # LeCun's


def cnn2d_2layer_fullconnected_2layer() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 1024), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(1024, 10),
    )  # fmt: skip
    return initialised(model, nn.init.xavier_uniform_)


def initialised(model: nn.Sequential, of_kernel: Callable[[Tensor], Tensor]) -> nn.Sequential:
    for parameter in model.parameters():
        of_kernel(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    return model


BOTH = "allocator+channels_last"
TUNING = "memory kept between steps (glibc), and the memory format that CPUs are fastest in"
NETWORKS = {build.__name__: build for build in (cnn2d_3layer_fullconnected_3layer, cnn2d_2layer_fullconnected_2layer)}


class MaskedDropout(nn.Module):
    """Dropout by a mask that is given, for --replay."""

    mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


class Images:
    """All rows of a CSV in memory, pixels from 0 to 1; channels last where asked for."""

    def __init__(self, path: str, tuned: str) -> None:
        table = pd.read_csv(path).to_numpy()
        self.labels = torch.from_numpy(table[:, -1].astype(np.int64))
        pixels = torch.from_numpy(table[:, :-1].astype(np.float32)).mul_(1 / 255)
        # One channel: both layouts are the same bytes, only strides tell, and those of a permuted view do.
        self.channels_last = "channels_last" in tuned
        self.pixels = pixels.view(-1, 28, 28, 1) if self.channels_last else pixels.view(-1, 1, 28, 28)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pixels[rows]
        return x.permute(0, 3, 1, 2) if self.channels_last else x, self.labels[rows]


class Training:
    """Model, optimizer and one step; `rank` of `size` processes takes its part of each global batch."""

    def __init__(self, options: argparse.Namespace, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        torch.manual_seed(options.seed + rank)  # for dropout; DDP sends rank 0's initial weights to all
        layers = NETWORKS[options.network]()
        if options.replay:
            layers = [MaskedDropout() if isinstance(layer, nn.Dropout) else layer for layer in layers]
        self.network = nn.Sequential(*layers)
        if "channels_last" in options.tuned:
            self.network = self.network.to(memory_format=torch.channels_last)
        self.model: nn.Module = self.network
        if options.ddp:
            self.model = DistributedDataParallel(self.network, gradient_as_bucket_view=True)
        optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[options.optimizer]
        momentum = {"momentum": options.momentum, "nesterov": options.nesterov} if options.optimizer == "sgd" else {}
        self.optimizer = optimizer(self.model.parameters(), lr=options.learning_rate, **momentum)

    def own_part(self, global_batch: Tensor) -> Tensor:
        return global_batch.tensor_split(self.size)[self.rank]

    def step(self, x: Tensor, labels: Tensor, global_rows: int) -> Tensor:
        """One update; returns the sum of the losses of this rank's rows."""
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), labels, reduction="sum")
        # DDP averages over ranks, whatever rows each had: times ranks over rows makes of that the mean over rows.
        (loss * (self.size / global_rows)).backward()
        self.optimizer.step()
        return loss.detach()

    def over_ranks(self, value: Tensor) -> float:
        if self.size > 1:
            dist.all_reduce(value)
        return value.item()

    def train_epoch(self, images: Images, batch: int, order: torch.Generator) -> float:
        """Every row once, in a new order that is the same on all ranks; returns the mean loss."""
        self.model.train()
        total = torch.zeros(())
        for rows in torch.randperm(len(images), generator=order).split(batch):
            x, labels = images.batch(self.own_part(rows))
            total += self.step(x, labels, len(rows))
        return self.over_ranks(total) / len(images)

    @torch.inference_mode()
    def accuracy(self, images: Images) -> float:
        self.model.eval()
        batches = map(images.batch, torch.arange(len(images)).split(256))
        return sum(int((self.network(x).argmax(1) == labels).sum()) for x, labels in batches) / len(images)

    def replay(self, images: Images, recorded: Any) -> Iterator[tuple[float, float]]:
        """Loss and gradient norm of each recorded step."""
        with torch.no_grad():
            for place, parameter in enumerate(self.network.parameters()):
                parameter.copy_(torch.from_numpy(recorded[f"parameter_{place}"]))
        dropouts = [layer for layer in self.network if isinstance(layer, MaskedDropout)]
        for step in range(sum(name.startswith("rows_") for name in recorded)):
            for place, dropout in enumerate(dropouts):
                dropout.mask = self.own_part(torch.from_numpy(recorded[f"mask_{step}_{place}"]))
            rows = torch.from_numpy(recorded[f"rows_{step}"])
            loss = self.over_ranks(self.step(*images.batch(self.own_part(rows)), len(rows))) / len(rows)
            yield loss, torch.cat([p.grad.flatten() for p in self.network.parameters()]).double().norm().item()


def tune_allocator() -> None:
    """Keep glibc from returning large activations to the kernel after each step (values of <malloc.h>)."""
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((-4, 0), (-1, 2**31 - 1), (-2, 256 << 20)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        mallopt(parameter, value)


def join_ranks() -> tuple[int, int]:
    """Rank and size as mpirun or torchrun says them, met through gloo."""
    prefix = "OMPI_COMM_WORLD_" if "OMPI_COMM_WORLD_RANK" in os.environ else ""
    rank, size = int(os.environ[f"{prefix}RANK"]), int(os.environ[f"{prefix or 'WORLD_'}SIZE"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    return rank, size


def train(options: argparse.Namespace, rank: int, size: int) -> None:
    """Timed epochs; an epoch is all its steps: batches, forward, backward, sum over ranks, update."""
    images = Images(options.train, options.tuned)
    training = Training(options, rank, size)
    order = torch.Generator().manual_seed(options.seed)
    say = print if rank == 0 else lambda text: None
    epochs = []
    for epoch in range(1, options.epochs + 1):
        began = time.perf_counter()
        loss = training.train_epoch(images, options.batch, order)
        seconds = time.perf_counter() - began
        epochs.append({"epoch": epoch, "seconds": seconds, "rows_per_second": len(images) / seconds, "loss": loss})
        say(f"epoch {epoch}: loss {loss:.4f}, {len(images) / seconds:.0f} rows/s")
    accuracy = training.accuracy(Images(options.test, options.tuned)) if options.test else None
    if accuracy is not None:
        say(f"test accuracy {accuracy:.2%}")
    if options.json and rank == 0:
        process = {"ranks": size, "threads": torch.get_num_threads(), "affinity": sorted(os.sched_getaffinity(0))}
        found = {"rows": len(images), "epochs": epochs, "test_accuracy": accuracy}
        document = {"torch": torch.__version__, **process, **found, "settings": vars(options)}
        options.json.write_text(json.dumps(document, indent=2, default=str) + "\n")


def replay(options: argparse.Namespace, rank: int, size: int) -> None:
    training = Training(options, rank, size)
    with np.load(options.replay) as recorded:
        steps = list(training.replay(Images(options.train, options.tuned), recorded))
    weights = {f"parameter_{place}": p.detach().numpy() for place, p in enumerate(training.network.parameters())}
    if rank == 0:
        np.savez(options.out, loss=[loss for loss, _ in steps], gradient_norm=[norm for _, norm in steps], **weights)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a convolutional network on the rows of a CSV with PyTorch.")
    parser.add_argument("--network", choices=NETWORKS, default="cnn2d_3layer_fullconnected_3layer")
    parser.add_argument("--train", required=True, metavar="CSV")
    parser.add_argument("--test", metavar="CSV")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=50, help="rows of one update, over all ranks")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--momentum", type=float, default=0.0, help="of sgd")
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads a process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tuned", nargs="?", const=BOTH, default="", choices=(*BOTH.split("+"), BOTH), help=TUNING)
    parser.add_argument("--ddp", action="store_true", help="DistributedDataParallel with gloo over all processes")
    parser.add_argument("--replay", metavar="NPZ", help="take weights, batches and masks from a file")
    parser.add_argument("--out", metavar="NPZ", help="where --replay writes losses, gradient norms and weights")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where rank 0 writes settings and seconds per epoch")
    options = parser.parse_args()
    if bool(options.replay) != bool(options.out):
        parser.error("--replay and --out belong together")
    return options


def main() -> None:
    options = parse()
    if "allocator" in options.tuned:
        tune_allocator()
    torch.set_num_threads(options.threads)
    rank, size = join_ranks() if options.ddp else (0, 1)
    (replay if options.replay else train)(options, rank, size)
    if options.ddp:
        dist.destroy_process_group()
        sys.stdout.flush()
        # gloo's thread may drop its last tensor while Python ends, and abort: https://github.com/pytorch/pytorch/pull/179291
        os._exit(0)


if __name__ == "__main__":
    main()
