"""The cases of a matrix that one backend runs where another one runs them all.

Of all parameters and the backend as one more, every pair of values is then in some case that runs: pairs without the
backend in those of the one that runs them all, pairs with it in what `covering` chooses. That is a pairwise covering
set (Kuhn, Kacker, Lei: Practical Combinatorial Testing, NIST SP 800-142, 2010).
"""

from __future__ import annotations

from collections.abc import Sequence


def covering(cases: Sequence[tuple[int, ...]], turn: int = 0) -> list[int]:
    """Places in `cases` of some among which each parameter has each of its values at least once, in order.

    `cases`: the number of each parameter's value. `turn`: who asks; others begin with another case, so that between
    them they choose more.
    """
    missing = {pair for case in cases for pair in enumerate(case)}
    first = turn * 7 % len(cases) if cases else 0
    order = [*range(first, len(cases)), *range(first)]
    chosen: list[int] = []
    while missing:
        best = max(order, key=lambda place: len(missing.intersection(enumerate(cases[place]))))
        missing.difference_update(enumerate(cases[best]))
        chosen.append(best)
    return sorted(chosen)
