"""The choice of each method's setting, on the embedded model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "methods.py"
CONFIG = """
model: {name: tiny}
task: {name: recall, options: {n_pairs: 20}}
examples: {n_per_position: 2}
report: {n_per_position: 2}
"""


def run(tmp_path, *arguments):
    (tmp_path / "search.yaml").write_text(CONFIG)
    command, *others = arguments
    return subprocess.run(
        [sys.executable, SCRIPT, command, "search.yaml", *others],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    ).stdout


@pytest.mark.slow
def test_the_best_setting_of_each_method_is_that_of_the_most_likely_answers(tmp_path):
    specs = ["baseline", "pi:1.5", "pi:4", "ms-poe"]
    first = run(tmp_path, "choose", *specs[:3])
    output = run(tmp_path, "choose", *specs)
    nats = {spec: float(value) for spec, value in re.findall(r"\| `(.+)` \| (\S+) \|", output)}
    assert list(nats) == specs
    better = min(("pi:1.5", "pi:4"), key=nats.__getitem__)
    assert output.endswith(f"n = 6. The best of each method: --methods baseline,{better},ms-poe\n")
    # Scores are kept: what was measured before is read, not measured again.
    kept = [json.loads(line) for line in (tmp_path / "choice.jsonl").read_text().splitlines()]
    assert [record.get("spec") for record in kept] == [None, *specs]
    assert first.splitlines()[:5] == output.splitlines()[:5]


def test_the_texts_to_train_on_are_the_search_examples_alone(tmp_path):
    run(tmp_path, "data")
    texts = [json.loads(line) for line in (tmp_path / "moice-data.jsonl").read_text().splitlines()]
    assert len(texts) == 6
    assert all(text["prompt"] and text["answer"] for text in texts)
