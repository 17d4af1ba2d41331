"""A layer of one's own for jobs/native/lasagne.toml: its trainable parameters are trained like any weights."""

from __future__ import annotations

from typing import Any

import lasagne
import theano.tensor as T


class PReLU(lasagne.layers.Layer):  # type: ignore[misc]
    """A ReLU whose slope below 0 is learnt, one a channel (He et al., ICCV 2015)."""

    def __init__(self, incoming: Any, slope: float) -> None:
        super().__init__(incoming)
        self.slope = self.add_param(lasagne.init.Constant(slope), (self.input_shape[1],), name="slope")

    def get_output_for(self, input: Any, **settings: Any) -> Any:
        return T.switch(input > 0, input, self.slope.dimshuffle("x", 0, "x", "x") * input)
