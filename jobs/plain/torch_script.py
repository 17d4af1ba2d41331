"""The PyTorch training loop that a practitioner would write: the outside baseline. It imports no hpcnn.

    python jobs/plain/torch_script.py --train data/train.csv --test data/test.csv --batch 50 --tuned
    mpirun -np 2 python jobs/plain/torch_script.py --ddp --threads 1 --train data/train.csv
    mpirun -np 2 python jobs/plain/torch_script.py --horovod --threads 1 --train data/train.csv

common.py says what the CSV and --replay hold.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import Epochs, Recording, flags, parse, read_rows, write_replayed
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


def cnn2d_2layer_fullconnected_3layer() -> nn.Sequential:
    model = nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(4096, 10),
    )  # fmt: skip
    return initialised(model, lambda kernel: nn.init.kaiming_uniform_(kernel, nonlinearity="relu"))  # He's


def initialised(model: nn.Sequential, of_kernel: Callable[[Tensor], Tensor]) -> nn.Sequential:
    for parameter in model.parameters():
        of_kernel(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    return model


BOTH = "allocator+channels_last"
TUNING = "memory kept between steps (glibc), and the memory format that CPUs are fastest in"
BUILDERS = cnn2d_3layer_fullconnected_3layer, cnn2d_2layer_fullconnected_2layer, cnn2d_2layer_fullconnected_3layer
NETWORKS = {build.__name__: build for build in BUILDERS}


class MaskedDropout(nn.Module):
    """Dropout by a mask that is given, for --replay."""

    mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


class Images:
    """All rows of a CSV in memory, pixels from 0 to 1; channels last where asked for."""

    def __init__(self, path: str, tuned: str) -> None:
        pixels, self.labels = map(torch.from_numpy, read_rows(path))
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
        torch.manual_seed(options.seed + rank)  # for dropout; rank 0's initial weights are sent to all
        layers = NETWORKS[options.network]()
        if options.replay:
            layers = [MaskedDropout() if isinstance(layer, nn.Dropout) else layer for layer in layers]
        self.network = nn.Sequential(*layers)
        # Horovod takes contiguous weights alone; activations are channels last all the same, as their images are.
        if "channels_last" in options.tuned and not options.horovod:
            self.network = self.network.to(memory_format=torch.channels_last)
        self.model: nn.Module = self.network
        if options.ddp:
            self.model = DistributedDataParallel(self.network, gradient_as_bucket_view=True)
        optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[options.optimizer]
        momentum = {"momentum": options.momentum, "nesterov": options.nesterov} if options.optimizer == "sgd" else {}
        self.optimizer = optimizer(self.model.parameters(), lr=options.learning_rate, **momentum)
        self.horovod = options.horovod
        if options.horovod:
            hvd.broadcast_parameters(self.network.state_dict(), root_rank=0)
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.network.named_parameters())

    def own_part(self, global_batch: Tensor) -> Tensor:
        return global_batch.tensor_split(self.size)[self.rank]

    def step(self, x: Tensor, labels: Tensor, global_rows: int) -> Tensor:
        """One update; returns the sum of the losses of this rank's rows."""
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), labels, reduction="sum")
        # Both average over ranks, whatever rows each had: times ranks over rows makes of that the mean over rows.
        (loss * (self.size / global_rows)).backward()
        self.optimizer.step()
        return loss.detach()

    def over_ranks(self, value: Tensor) -> float:
        if self.horovod:
            value = hvd.allreduce(value, name="loss", op=hvd.Sum)
        elif self.size > 1:
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

    def replay(self, images: Images, recorded: Recording) -> Iterator[tuple[float, float]]:
        """Loss and gradient norm of each recorded step."""
        with torch.no_grad():
            for parameter, value in zip(self.network.parameters(), recorded.parameters, strict=True):
                parameter.copy_(torch.from_numpy(value))
        dropouts = [layer for layer in self.network if isinstance(layer, MaskedDropout)]
        for numbers, masks in recorded.steps:
            for dropout, mask in zip(dropouts, masks, strict=True):
                dropout.mask = self.own_part(torch.from_numpy(mask))
            rows = torch.from_numpy(numbers)
            loss = self.over_ranks(self.step(*images.batch(self.own_part(rows)), len(rows))) / len(rows)
            yield loss, torch.cat([p.grad.flatten() for p in self.network.parameters()]).double().norm().item()


def join_ranks() -> tuple[int, int]:
    """Rank and size as mpirun or torchrun says them, met through gloo."""
    prefix = "OMPI_COMM_WORLD_" if "OMPI_COMM_WORLD_RANK" in os.environ else ""
    rank, size = int(os.environ[f"{prefix}RANK"]), int(os.environ[f"{prefix or 'WORLD_'}SIZE"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    return rank, size


def join_horovod() -> tuple[int, int]:
    """Rank and size as Horovod has them from MPI."""
    global hvd
    import horovod.torch as hvd

    hvd.init()
    return hvd.rank(), hvd.size()


def train(options: argparse.Namespace, rank: int, size: int) -> None:
    images = Images(options.train, options.tuned)
    training = Training(options, rank, size)
    order = torch.Generator().manual_seed(options.seed)
    epochs = Epochs(len(images), print if rank == 0 else lambda text: None)
    for _ in range(options.epochs):
        epochs.start()
        epochs.end(training.train_epoch(images, options.batch, order))
    accuracy = training.accuracy(Images(options.test, options.tuned)) if options.test else None
    if rank == 0:
        epochs.report(options, accuracy, torch=torch.__version__, ranks=size, threads=torch.get_num_threads())


def replay(options: argparse.Namespace, rank: int, size: int) -> None:
    training = Training(options, rank, size)
    steps = list(training.replay(Images(options.train, options.tuned), Recording(options.replay)))
    if rank == 0:
        write_replayed(options.out, steps, (value.detach().numpy() for value in training.network.parameters()))


def main() -> None:
    parser = flags("PyTorch", NETWORKS, BOTH, TUNING, torch.get_num_threads())
    parallel = parser.add_mutually_exclusive_group()
    parallel.add_argument("--ddp", action="store_true", help="DistributedDataParallel with gloo over all processes")
    parallel.add_argument("--horovod", action="store_true", help="Horovod's DistributedOptimizer over all processes")
    options = parse(parser)
    torch.set_num_threads(options.threads)
    rank, size = join_ranks() if options.ddp else join_horovod() if options.horovod else (0, 1)
    (replay if options.replay else train)(options, rank, size)
    if options.ddp:
        dist.destroy_process_group()
        sys.stdout.flush()
        # gloo's thread may drop its last tensor while Python ends, and abort: https://github.com/pytorch/pytorch/pull/179291
        os._exit(0)


if __name__ == "__main__":
    main()
