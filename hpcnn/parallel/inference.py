"""The network's output where it is cut, be it over several ranks: batch after batch, without slots."""

from __future__ import annotations

from collections.abc import Mapping

from hpcnn.parallel.messages import Messages
from hpcnn.parallel.parts import Links, Part
from hpcnn.parallel.program import Kind, Operation
from hpcnn.wrappers.contract import Array


class Inference:
    """A replica's network. Each of its stages calls `infer` for the same batches in the same order."""

    def __init__(self, parts: Mapping[int, Part], links: Links) -> None:
        self._parts = sorted(parts.items())
        self._messages = links.messages

    def infer(self, x: Array) -> Array | None:
        """Logits where the last segment is, None elsewhere. Of `x` the first segment reads the values, the others the
        number of rows; a stage that has sent its output goes on to the next batch."""
        output = x
        for number, part in self._parts:
            if self._messages is not None and not part.segment.is_first:
                output = self._receive(self._messages, number, part, len(x))
            output = part.model.infer(output)
            if part.segment.is_last:
                return output
            if self._messages is not None:
                self._messages.send(Operation(Kind.SEND, number, 0), output)
        return None

    def finish(self) -> None:
        """Wait until all that was sent has gone."""
        if self._messages is not None:
            self._messages.finish()

    def _receive(self, messages: Messages, number: int, part: Part, rows: int) -> Array:
        accept = Operation(Kind.ACCEPT, number, 0)
        messages.expect([(accept, (rows, *part.segment.input_shape))])
        x = messages.receive(accept)
        messages.release(accept)  # the next one is asked for after this one is used
        return x
