import json

import pytest

from lpes_evo.errors import JournalError
from lpes_evo.evaluation import Evaluation


@pytest.mark.parametrize(
    "evaluation",
    [
        Evaluation((0.1 + 0.2, -1e-300), (1 / 3, 2.0), 0.5),
        Evaluation((1.0,), (1.0,), 0.5, tokens=700, halvings=2),
        Evaluation((), (), 0.5, "failed", "Traceback\nValueError: no"),
        Evaluation((), (0.5, -1.0), 0.5, "raced", scored=(7, 0)),
    ],
)
def test_an_evaluation_round_trips_exactly_through_json(evaluation):
    assert Evaluation.from_json(json.loads(json.dumps(evaluation.to_json()))) == evaluation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": None}, "Expected an evaluation with values"),
        ({"scores": ["a"]}, "Expected an evaluation with values"),
        ({"seconds": "soon"}, "Expected an evaluation with values"),
        ({"status": "fine"}, "the status 'ok', or none with .*, but got status 'fine'"),
        ({"values": [float("nan")]}, r"finite values .* values \[nan\]"),
        ({"values": []}, r"values \[\]"),
        ({"status": "raced"}, r"status 'raced' and values \[1.0\]"),
        ({"status": "raced", "values": []}, r"example number for each of 1 scores .* but got \[\]"),
        ({"status": "raced", "values": [], "scored": [0, 0], "scores": [1.0, 2.0]}, r"distinct .* \[0, 0\]"),
        ({"status": "raced", "values": [], "scored": [-1]}, "-1 is not a whole number from 0"),
        ({"scored": [0]}, r"each of 0 scores of status 'raced' or 'sampled', but got \[0\]"),
        ({"scored": 1}, "Expected an evaluation with values"),
        ({"tokens": "7"}, "'7' is not a whole number from 0"),
        ({"halvings": -1}, "-1 is not a whole number from 0"),
        ({"halvings": True}, "True is not a whole number"),
        ({"halvings": 1.5}, "1.5 is not a whole number"),
    ],
)
def test_an_edited_evaluation_is_refused(change, message):
    record = Evaluation((1.0,), (1.0,), 0.5).to_json() | change
    with pytest.raises(JournalError, match=message):
        Evaluation.from_json(record)


def test_a_missing_field_is_refused():
    record = Evaluation((1.0,), (1.0,), 0.5).to_json()
    del record["scores"]
    with pytest.raises(JournalError, match="KeyError\\('scores'\\)"):
        Evaluation.from_json(record)
