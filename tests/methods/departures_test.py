"""What a record says of where a method departs from the code that it follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lpes_evo.methods import make_method
from method_promises import CASES, moice
from rope_families import tiny_model

OTHER_BASE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
LINEAR = {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}


def model(model_type: str = "llama", **changes: Any) -> Any:
    """Return a model whose query heads have a key head each, unless it is changed."""
    return tiny_model(model_type, **{"num_key_value_heads": 4, **changes})


def departures(spec: str, on: Any) -> list[str]:
    record = make_method(spec).record(3, on)
    # It is written down as it is.
    assert json.loads(json.dumps(record)) == record
    return record.get("departures", [])


@pytest.mark.parametrize(
    "spec",
    [
        "baseline",
        "pi:2",
        "yarn:4",
        "attention-buckets",
        "ms-poe",
        "ms-poe:order=released",
        "ms-poe:order=normal",
    ],
)
def test_nothing_departs_on_a_model_like_those_of_the_released_codes(spec: str) -> None:
    assert departures(spec, model()) == []
    assert "departures" not in make_method(spec).record(3)


@pytest.mark.parametrize("order", ["rank", "released", "normal"])
def test_ms_poe_says_that_query_heads_that_share_keys_share_a_ratio(order: str) -> None:
    (told,) = departures(f"ms-poe:order={order}", model(num_key_value_heads=2))
    assert told.startswith("the 4 query heads of a layer share 2 key heads, and each group has one ratio")
    assert "the released code has a ratio for each head" in told


def test_ms_poe_says_that_its_statistic_does_not_slide() -> None:
    sliding = model("mistral", sliding_window=5)
    (told,) = departures("ms-poe:order=released", sliding)
    assert "sliding window the statistic counts all keys" in told
    assert departures("ms-poe:order=normal", sliding) == []


def test_ms_poe_says_what_it_divides_in_front_of() -> None:
    (told,) = departures("ms-poe", model(**LINEAR))
    assert told.startswith("positions are divided in front of the model's rotary type linear")


def test_published_bases_say_that_they_are_multiplied() -> None:
    other = model(**OTHER_BASE)
    (told,) = departures("attention-buckets:tool", other)
    assert told.startswith("bases are multiplied by the model's own over 10000")
    assert told.endswith("since its own is 500000")
    assert departures("attention-buckets:10000/20000", other) == []
    (told,) = departures("attention-buckets:10000/20000", model(**LINEAR))
    assert told.startswith("the bases are changed in front of the model's rotary type linear")


def test_moice_says_what_the_released_code_computes_otherwise(tmp_path: Path) -> None:
    def of(on: Any) -> list[str]:
        return moice((1.0, 1.75), 2)(on, tmp_path).record(3, on)["departures"]

    always = of(model())
    assert ["positions of its own" in always[0], "float32" in always[1], len(always)] == [True, True, 2]
    assert [told.split(" by ")[0] for told in of(model(**OTHER_BASE))[2:]] == ["bases are multiplied"]
    assert [told.split(" in ")[0] for told in of(model(**LINEAR))[2:]] == ["the bases are changed"]


def test_ntk_says_where_it_departs_from_the_dynamic_type() -> None:
    told = departures("ntk:2", model())
    assert ["own prompt" in told[0], "to the end" in told[1], "remembered" in told[2], len(told)] == [
        True
    ] * 3 + [3]
    assert departures("ntk:2:length=40", model())[0].startswith("every row counts as a prompt of 40 tokens")
    assert departures("ntk:2:original=4", model())[3:] == [
        "the original window is 4 tokens, where the type takes max_position_embeddings, 128"
    ]


def test_pi_says_where_it_is_not_the_linear_type() -> None:
    (told,) = departures("pi:2", model(**LINEAR))
    assert told.startswith("positions are divided in front of the model's own rotary modules")


@pytest.mark.parametrize("name", CASES)
def test_every_method_can_be_asked_on_a_grouped_model(name: str, tmp_path: Path) -> None:
    grouped = tiny_model("llama")
    record = CASES[name].method(grouped, tmp_path).record(3, grouped)
    assert record["method"] == name.split("+")[0].split(",")[0].replace(
        "buckets in groups", "attention-buckets"
    )
    assert ("departures" in record) == (record["method"] in ("ntk", "ms-poe", "moice"))


def test_the_manual_tells_every_departure_on_a_grouped_model(tmp_path: Path) -> None:
    manual = " ".join((Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8").split())
    for spoken in (
        "a group shares one ratio",
        "a ratio for each head",
        "multiplied by its own base over 10000",
        "every row has its own positions",
        "routers are kept and computed in float32",
        "every row has the base of its own prompt",
        "a sliding window",
    ):
        assert spoken in manual, spoken
