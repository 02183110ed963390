"""The rounds of an experiment: their order, their end, and measurements that fail."""

from __future__ import annotations

import pytest

from headway.output.results import Parameters, Results
from headway.output.table import Table
from headway.programs import interpreters
from headway.programs.processes import ProgramError
from headway_lab.experiment import Choice, Experiment, Measured, Row
from headway_lab.rounds import MAX_FAILURES, Length, Rounds
from headway_lab.setting import STOCK

CHOICE = Choice(interpreters.this())


class Letters(Experiment):
    """Rows a, b, c: the value is how many were measured before. d cannot be measured here."""

    name = "letters"
    unit = "measurements"
    summary = "letters"
    shows = "Letters. In order."

    def __init__(self) -> None:
        self.measured: list[str] = []

    def rows(self, choice: Choice) -> list[Row]:
        rows = [Row({"letter": letter}, STOCK) for letter in "abc"]
        return [*rows, Row({"letter": "d"}, STOCK, "the alphabet is too short")]

    def calibrate(self, choice: Choice) -> Parameters:
        return {"offset": 100}

    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        self.measured.append(row.parameters["letter"])
        count = calibration["offset"] + len(self.measured)
        return Measured(count, {"half": count / 2}, [float(count)])

    def published(self, parameters: Parameters) -> float | None:
        return {"a": 1.0}.get(parameters["letter"])

    def tables(self, results: Results) -> list[Table]:
        return []


def rounds_of(experiment: Experiment, length: Length) -> Rounds:
    return Rounds(experiment, CHOICE, length, lambda _: None)


def test_every_other_round_goes_backwards() -> None:
    experiment = Letters()
    rounds = rounds_of(experiment, Length(3, None))
    rounds.run()
    assert "".join(experiment.measured) == "abccbaabc"
    first = rounds.results.find(letter="a")
    assert first is not None
    assert first.values == [101, 106, 107]
    assert first.figures == {"half": [50.5, 53, 53.5]}
    assert first.samples_s == [101, 106, 107]
    assert first.published == 1
    assert rounds.results.calibration == {"offset": 100}


def test_a_row_that_is_left_out_is_never_measured_and_says_why() -> None:
    experiment = Letters()
    rounds = rounds_of(experiment, Length(1, None))
    rounds.run()
    left_out = rounds.results.find(letter="d")
    assert left_out is not None
    assert left_out.values == []
    assert left_out.reason == "the alphabet is too short"
    assert "d" not in experiment.measured


class Dying(Letters):
    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        found = super().measure(row, choice, calibration)
        if row.parameters["letter"] == "b":
            raise ProgramError(f"b.py ended at {found.value:g}")
        return found


def test_a_worker_that_dies_is_a_row_that_says_so() -> None:
    experiment = Dying()
    rounds = rounds_of(experiment, Length(4, None))
    rounds.run()
    dead, alive = rounds.results.find(letter="b"), rounds.results.find(letter="c")
    assert dead is not None
    assert alive is not None
    assert dead.reason == "b.py ended at 105"
    assert len(dead.failures) == experiment.measured.count("b") == MAX_FAILURES
    assert len(alive.values) == 4


class Uncalibrated(Letters):
    def calibrate(self, choice: Choice) -> Parameters:
        raise ProgramError("a.py ended")


def test_rows_that_cannot_be_calibrated_say_so() -> None:
    experiment = Uncalibrated()
    rounds = rounds_of(experiment, Length(4, None))
    rounds.run()
    assert experiment.measured == []
    assert [each.reason for each in rounds.results] == [
        *["not calibrated: a.py ended"] * 3,
        "the alphabet is too short",
    ]


class Interrupted(Letters):
    def measure(self, row: Row, choice: Choice, calibration: Parameters) -> Measured:
        if len(self.measured) == 4:
            raise KeyboardInterrupt
        return super().measure(row, choice, calibration)


def test_an_interruption_leaves_what_was_measured() -> None:
    rounds = rounds_of(Interrupted(), Length(3, None))
    with pytest.raises(KeyboardInterrupt):
        rounds.run()
    assert [result.values for result in rounds.results] == [[101], [102], [103, 104], []]


def test_a_budget_gives_a_row_three_values_however_small() -> None:
    length = Length(None, 1.0)
    assert not length.is_over(2, 1000.0)
    assert length.is_over(3, 1000.0)


def test_a_budget_ends_before_a_round_that_has_no_room() -> None:
    length = Length(None, 10.0)
    assert not length.is_over(4, 7.9)
    assert length.is_over(4, 8.1)


def test_a_budget_ends_when_more_values_tell_no_more() -> None:
    assert Length(None, 1000.0).is_over(25, 1.0)


@pytest.mark.parametrize(
    ("length", "rounds_done", "elapsed_s", "left_s"),
    [
        (Length(5, None), 0, 3.0, None),
        (Length(5, None), 1.5, 3.0, 7.0),
        (Length(None, 60.0), 2, 10.0, 50.0),
        (Length(None, 60.0), 1, 50.0, 100.0),
        # There are no more than 25 values, whatever the budget.
        (Length(None, 60.0), 24, 12.0, 0.5),
    ],
)
def test_the_time_that_is_left(
    length: Length, rounds_done: float, elapsed_s: float, left_s: float | None
) -> None:
    assert length.left_s(rounds_done, elapsed_s) == left_s
