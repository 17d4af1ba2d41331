"""Who is named as late, and over what: by the steps' arrivals and by the phases' seconds."""

from __future__ import annotations

import pytest

from hpcnn.records.arrivals import Lateness
from hpcnn.records.phases import Tally
from hpcnn.records.run_folder import RankTimes
from hpcnn.training.late import late_lines

TRAINING = 10.0
STEPS = 200  # of 50 ms


def rank(
    number: int, seconds: float, later: int, *, steps: int = STEPS, group: str = "all", **phases: float
) -> RankTimes:
    """One that comes behind in `later` steps, typically by `seconds`; `phases`: its seconds in epoch 1."""
    spent = {"load": 0.2, "forward": 1.0, "backward": 1.5, "update": 0.1, "other": 0.1, **phases}
    rows = [(1, phase, Tally(1, value, value, value)) for phase, value in spent.items()]
    rows.append((0, "load", Tally(1, 99.0, 99.0, 99.0)))  # before the first epoch
    return RankTimes(number, f"n{number}", TRAINING, rows, Lateness(group, steps, later, seconds))


def on_time(number: int, **more: str | int) -> RankTimes:
    return rank(number, -0.01, 10, **more)  # type: ignore[arg-type]


def test_a_rank_that_computes_longer_is_named_with_its_host_its_delay_and_how_much_longer() -> None:
    times = [on_time(0), on_time(1), rank(2, 0.0123, 190, forward=4.0, backward=8.0)]
    assert late_lines(times, TRAINING) == [
        "late: rank 2 (n2), behind the others' median in 95% of 200 steps, typically by 12.3 ms: its forward and "
        "backward take 4.8 times theirs"
    ]


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ({"load": 3.0}, "its loading takes 15.0 times theirs"),
        ({"load": 30.0}, "its loading takes 30.00 s, theirs 0.20 s"),
        ({"gradient": 2.5}, "its forward and backward take 2.0 times theirs"),
        ({"update": 3.0}, "its updates take 30.0 times theirs"),
        ({"other": 3.0}, "its other work takes 30.0 times theirs"),
        ({"wait": 3.0}, "it is kept waiting itself, by messages or by other stages"),
    ],
)
def test_the_reason_is_what_most_of_the_delay_was_spent_on(phases: dict[str, float], words: str) -> None:
    (line,) = late_lines([on_time(0), on_time(1), rank(2, 0.0123, 190, **phases)], TRAINING)
    assert line.startswith("late: rank 2 (n2), ")
    assert line.endswith(f": {words}")


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([rank(0, 0.0001, 110), rank(1, -0.0001, 90)], id="each now and then"),
        pytest.param([rank(0, 0.0001, 190), rank(1, -0.0001, 10)], id="always, by little"),
        pytest.param([rank(0, 0.02, 140), rank(1, -0.02, 60)], id="by much, but not always"),
        pytest.param([rank(0, 0.02, 15, steps=20), rank(1, -0.02, 5, steps=20)], id="in too few steps"),
    ],
)
def test_nobody_is_named_for_noise(times: list[RankTimes]) -> None:
    assert late_lines(times, TRAINING) == ["late: none"]


def test_a_run_of_a_few_steps_says_that_it_cannot_tell() -> None:
    times = [rank(0, 0.5, 5, steps=5, forward=9.0), on_time(1, steps=5)]
    assert late_lines(times, TRAINING) == ["late: 5 steps are too few to tell"]


def test_one_process_no_epoch_and_a_reduction_that_is_not_seen_say_nothing() -> None:
    assert late_lines([on_time(0)], TRAINING) == []
    assert late_lines([on_time(0), on_time(1)], 0.0) == []
    assert late_lines([on_time(0, steps=0), on_time(1, steps=0)], TRAINING) == []


def test_ranks_of_a_slow_host_are_all_named_up_to_three() -> None:
    late = [rank(number, 0.02, 180, forward=5.0) for number in (1, 2, 4, 5)]
    lines = late_lines([*map(on_time, (0, 3, 6, 7, 8)), *late], TRAINING)
    assert [line.partition(",")[0] for line in lines] == [
        "late: rank 1 (n1)", "late: rank 2 (n2)", "late: rank 4 (n4)", "late: and 1 more",
    ]  # fmt: skip


def test_of_a_replicas_stages_the_one_with_a_reason_of_its_own_is_named() -> None:
    first, second = "replicas of stage 0", "replicas of stage 1"
    times = [
        on_time(0, group=first), on_time(1, group=second),
        rank(2, 0.02, 199, group=first, wait=4.0), rank(3, 0.02, 198, group=second, backward=6.0),
    ]  # fmt: skip
    (line,) = late_lines(times, TRAINING)
    assert line.startswith("late: rank 3 (n3), ")
    assert line.endswith("its forward and backward take 2.8 times theirs")


def stage(number: int, **phases: float) -> RankTimes:
    return rank(number, 0.0, 0, steps=0, group=f"replicas of stage {number}", **phases)


def test_the_stage_that_works_much_longer_than_the_others_is_named() -> None:
    times = [stage(0), stage(1), stage(2, backward=5.0), stage(3)]
    assert late_lines(times, TRAINING) == [
        "late: rank 2 (n2), the stage that others wait for: its forward and backward take 2.4 times theirs"
    ]
    assert late_lines([stage(0), stage(1, backward=2.0), stage(2)], TRAINING) == ["late: none"]
