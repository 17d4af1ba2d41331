"""Run by caffe_native.py as a process of its own: python -m hpcnn.wrappers.caffe_try, a prototxt on standard input.

Takes the net forward and backward, on several rows and on one, in training and in inference; Caffe ends the process
where that cannot be done.
"""

from __future__ import annotations

import sys

from hpcnn.wrappers.caffe_net import TEST, TRAIN, load


def main(prototxt: str) -> None:
    for phase in (TRAIN, TEST):
        net = load(prototxt, phase)
        blobs, last = net._blobs, len(net.layers) - 1
        for rows in (3, 1):
            shape = list(blobs[0].shape)
            blobs[0].reshape(rows, *shape[1:])
            blobs[0].data[...] = 0.5
            net._forward(0, last)
            blobs[len(blobs) - 1].diff[...] = 1.0
            net._backward(last, 0)


if __name__ == "__main__":
    main(sys.stdin.read())
