"""What a network is, without any framework: layer specs, shapes, cost, initial weights, dropout masks, the zoo."""

from __future__ import annotations

from hpcnn.network.architecture import Architecture, DropoutSite, Segment
from hpcnn.network.cost import LayerCost, layer_costs
from hpcnn.network.initial import initial_weights, segment_weights
from hpcnn.network.layers import (
    AveragePool2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2D,
    ReLU,
    Softmax,
    Tanh,
)
from hpcnn.network.masks import dropout_mask, segment_masks
from hpcnn.network.native import Native
from hpcnn.network.network_file import get_network
from hpcnn.network.parameters import Parameter
from hpcnn.network.shapes import output_shape, resolved_padding
from hpcnn.network.zoo import Network, find_network, networks, register_network

__all__ = [
    "Architecture",
    "AveragePool2D",
    "Conv2D",
    "Dense",
    "Dropout",
    "DropoutSite",
    "Flatten",
    "Layer",
    "LayerCost",
    "MaxPool2D",
    "Native",
    "Network",
    "Parameter",
    "ReLU",
    "Segment",
    "Softmax",
    "Tanh",
    "dropout_mask",
    "find_network",
    "get_network",
    "initial_weights",
    "layer_costs",
    "networks",
    "output_shape",
    "register_network",
    "resolved_padding",
    "segment_masks",
    "segment_weights",
]
