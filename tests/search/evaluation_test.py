import json

import pytest

from lpes_evo.errors import JournalError
from lpes_evo.search import Evaluation


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
        ({"values": None}, "values is None: input should be"),
        ({"scores": ["a"]}, r"scores\.0 is 'a': input should be a valid number"),
        ({"seconds": "soon"}, "seconds is 'soon': input should be a valid number"),
        ({"status": "fine"}, "status is 'fine': input should be 'ok', 'failed', 'raced' or 'sampled'"),
        ({"values": [float("nan")]}, r"to be finite .* but got nan at values\.0"),
        ({"values": []}, r"values \[\]"),
        ({"status": "raced"}, r"status 'raced' came with values \[1.0\]"),
        ({"status": "raced", "values": []}, r"example number belongs to each of 1 scores .* and \[\] came"),
        ({"status": "raced", "values": [], "scored": [0, 0], "scores": [1.0, 2.0]}, r"distinct .* \[0, 0\]"),
        ({"status": "raced", "values": [], "scored": [-1]}, r"scored\.0 is -1: input should be greater"),
        ({"scored": [0]}, r"each of 0 scores of status 'raced' or 'sampled', and \[0\] came"),
        ({"scored": 1}, "scored is 1: input should be a valid array"),
        ({"tokens": "7"}, "tokens is '7': input should be a valid integer"),
        ({"halvings": -1}, "halvings is -1: input should be greater"),
        ({"halvings": True}, "halvings is True: input should be a valid integer"),
        ({"halvings": 1.5}, "halvings is 1.5: input should be a valid integer"),
    ],
)
def test_an_edited_evaluation_is_refused(change, message):
    record = Evaluation((1.0,), (1.0,), 0.5).to_json() | change
    with pytest.raises(JournalError, match=message):
        Evaluation.from_json(record)


def test_a_missing_field_is_refused():
    record = Evaluation((1.0,), (1.0,), 0.5).to_json()
    del record["scores"]
    with pytest.raises(JournalError, match="the field 'scores', but it is missing"):
        Evaluation.from_json(record)
