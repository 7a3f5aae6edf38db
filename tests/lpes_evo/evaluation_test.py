import json

import pytest

from lpes_evo.errors import JournalError
from lpes_evo.evaluation import Evaluation


@pytest.mark.parametrize(
    "evaluation",
    [
        Evaluation((0.1 + 0.2, -1e-300), (1 / 3, 2.0), 0.5),
        Evaluation((), (), 0.5, "failed", "Traceback\nValueError: no"),
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
        ({"status": "fine"}, "the status 'ok' or 'failed', but got status 'fine'"),
        ({"values": [float("nan")]}, r"finite values .* values \[nan\]"),
        ({"values": []}, r"values \[\]"),
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
