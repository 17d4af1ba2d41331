"""The pipeline that a practitioner would write with torch.distributed.pipelining, over gloo. It imports no hpcnn.

    mpirun -np 2 python jobs/plain/torch_pipeline_script.py --cut 5 --schedule 1f1b --micro-batches 4 --batch 64 \
        --threads 1 --train data/train.csv --tuned

common.py says what the CSV and --replay hold. pipelining's buffers have one size: the file's rows have to be a multiple
of --batch, and that one of --micro-batches.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections import deque
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import Epochs, Recording, flags, parse, write_replayed
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch_script import BOTH, NETWORKS, TUNING, Images, join_ranks

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class MaskedDropout(nn.Module):
    """Dropout by masks that are given, one a micro-batch in their order, for --replay."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: deque[Tensor] = deque()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.masks.popleft() if self.training else x


class Permuted(nn.Module):
    """Images with their dimensions in another order; gloo takes contiguous tensors, channels-last ones seen as such."""

    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order) if x.dim() == 4 else x


class Training:
    """The stage of process `rank` of `size`, its optimizer and one step."""

    def __init__(self, options: argparse.Namespace, rank: int, size: int) -> None:
        self.rank, self.size, self.micro_batches = rank, size, options.micro_batches
        torch.manual_seed(options.seed)  # all ranks make the same network, and keep their stage of it
        layers = list(NETWORKS[options.network]())
        if options.replay:
            layers = [MaskedDropout() if isinstance(layer, nn.Dropout) else layer for layer in layers]
        channels_last = "channels_last" in options.tuned
        self.network = nn.Sequential(*layers)
        if channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)
        bounds = [0, *options.cut, len(layers)]
        self.stages = [
            nn.Sequential(
                *([Permuted(0, 3, 1, 2)] if channels_last and start else []),
                *layers[start:stop],
                *([Permuted(0, 2, 3, 1)] if channels_last and stop < len(layers) else []),
            )
            for start, stop in itertools.pairwise(bounds)
        ]
        torch.manual_seed(options.seed + rank)  # for dropout
        optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[options.optimizer]
        momentum = {"momentum": options.momentum, "nesterov": options.nesterov} if options.optimizer == "sgd" else {}
        self.stage = self.stages[rank]
        self.optimizer = optimizer(self.stage.parameters(), lr=options.learning_rate, **momentum)
        source, output = self._examples(options.batch, channels_last)[rank : rank + 2]
        stage = PipelineStage(self.stage, rank, size, torch.device("cpu"), input_args=source, output_args=output)

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(logits, labels, reduction="sum") / options.batch

        schedule = SCHEDULES[options.schedule]
        self.schedule = schedule(stage, options.micro_batches, loss, scale_grads=False)

    @torch.no_grad()
    def _examples(self, batch: int, channels_last: bool) -> list[Tensor]:
        """A micro-batch as it enters the first stage, and as it leaves each: what buffers are made like."""
        rows = batch // self.micro_batches
        x = torch.zeros(rows, 28, 28, 1).permute(0, 3, 1, 2) if channels_last else torch.zeros(rows, 1, 28, 28)
        found = [x]
        for stage in self.stages:
            found.append(stage.eval()(found[-1]))
            stage.train()
        return [x, *(output.detach().requires_grad_() for output in found[1:])]

    def step(self, x: Tensor, labels: Tensor) -> Tensor:
        """One update; returns the mean loss on the last rank, 0 elsewhere."""
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        source = (x,) if self.rank == 0 else ()
        target = {"target": labels, "losses": losses} if self.rank == self.size - 1 else {}
        self.schedule.step(*source, **target, return_outputs=False)
        self.optimizer.step()
        return torch.stack(losses).sum().detach() if losses else torch.zeros(())

    def over_ranks(self, value: Tensor) -> float:
        dist.all_reduce(value)
        return value.item()

    def train_epoch(self, images: Images, batch: int, order: torch.Generator) -> float:
        """Every row once, in a new order that is the same on all ranks; returns the mean loss."""
        total = torch.zeros(())
        for rows in torch.randperm(len(images), generator=order).split(batch):
            total += len(rows) * self.step(*images.batch(rows))
        return self.over_ranks(total) / len(images)

    def share_weights(self) -> None:
        """Every stage's parameters, to all ranks."""
        for rank, stage in enumerate(self.stages):
            for parameter in stage.parameters():
                dist.broadcast(parameter.data, src=rank)

    @torch.inference_mode()
    def accuracy(self, images: Images) -> float:
        self.network.eval()
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
                dropout.masks = deque(torch.from_numpy(mask).tensor_split(self.micro_batches))
            loss = self.over_ranks(self.step(*images.batch(torch.from_numpy(numbers))))
            squares = sum(p.grad.double().square().sum() for p in self.stage.parameters())
            yield loss, self.over_ranks(torch.as_tensor(squares)) ** 0.5


def train(options: argparse.Namespace, training: Training, images: Images) -> None:
    order = torch.Generator().manual_seed(options.seed)
    epochs = Epochs(len(images), print if training.rank == 0 else lambda text: None)
    for _ in range(options.epochs):
        epochs.start()
        epochs.end(training.train_epoch(images, options.batch, order))
    training.share_weights()
    if training.rank == 0:
        accuracy = training.accuracy(Images(options.test, options.tuned)) if options.test else None
        epochs.report(
            options, accuracy, torch=torch.__version__, ranks=training.size, threads=torch.get_num_threads()
        )  # fmt: skip


def replay(options: argparse.Namespace, training: Training, images: Images) -> None:
    steps = list(training.replay(images, Recording(options.replay)))
    training.share_weights()
    if training.rank == 0:
        write_replayed(options.out, steps, (value.detach().numpy() for value in training.network.parameters()))


def main() -> None:
    parser = flags("torch.distributed.pipelining", NETWORKS, BOTH, TUNING, torch.get_num_threads())
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--cut", type=int, nargs="+", required=True, help="first layer of each stage but the first")
    options = parse(parser)
    torch.set_num_threads(options.threads)
    rank, size = join_ranks()
    images = Images(options.train, options.tuned)
    if len(options.cut) != size - 1:
        parser.error(f"--cut has {len(options.cut)} numbers for {size} processes: give one less than there are")
    if len(images) % options.batch or options.batch % options.micro_batches:
        parser.error(
            f"{len(images)} rows are no multiple of --batch {options.batch}, or that one none of --micro-batches "
            f"{options.micro_batches}: give other ones"
        )
    (replay if options.replay else train)(options, Training(options, rank, size), images)
    dist.destroy_process_group()
    sys.stdout.flush()
    # gloo's thread may drop its last tensor while Python ends, and abort: https://github.com/pytorch/pytorch/pull/179291
    os._exit(0)


if __name__ == "__main__":
    main()
