"""What methods cost: pairs, passes, memory, shapes, and the command line."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from commands import lpes_evo, run_here
from lpes_evo.bench import (
    BenchReport,
    BenchSettings,
    MethodCost,
    Run,
    Shape,
    measure_costs,
    peak_meter,
    print_bench,
    random_model,
    run_bench,
    shape_names,
    speed_of,
)
from lpes_evo.errors import ConfigError, LpesError, ModelError, UnsupportedModelError
from lpes_evo.methods import make_method, method_names
from lpes_evo.models import load_model
from lpes_evo.statistics import Interval, order_interval
from method_promises import logits, state

FEW = {"prompt_tokens": 24, "new_tokens": 2, "repeats": 6}


def cost(kind: str, seconds: list[float], untouched: list[float], peaks: tuple[Any, ...] = ()) -> MethodCost:
    """Return a cost whose prefill takes the seconds given, and decoding twice as long."""
    pairs = [
        (Run(plain, 2 * plain), Run(changed, 2 * changed))
        for plain, changed in zip(untouched, seconds, strict=True)
    ]
    return MethodCost(kind, kind, 1.0, 1, tuple(pairs), peaks)


@pytest.fixture(scope="module")
def tiny() -> Any:
    return random_model(Shape.of("shape:tiny"), "float32", "cpu")


def test_intervals_are_those_of_the_sign_test() -> None:
    values = np.array([5.0, 1, 9, 3, 7, 2, 8, 4, 6])
    # Of nine, the second from either end: binomial tails of 10 / 512 each.
    assert order_interval(values) == Interval(5, 2, 8)
    assert order_interval(values[:6]) == Interval(4, 1, 9)


def test_ratios_are_taken_in_pairs() -> None:
    untouched = [1.0, 2, 4, 8, 16, 32]
    twice, half = (
        cost(name, [factor * t for t in untouched], untouched) for name, factor in (("a", 2), ("b", 0.5))
    )
    for part in ("prefill", "decode", "total"):
        assert twice.ratio(part) == Interval(2, 2, 2)
        assert speed_of(half, twice, part) == Interval(4, 4, 4)
    assert twice.median("prefill") == 12
    assert twice.peak is None is twice.peak_ratio
    assert cost("a", untouched, untouched, ((1, 3),) * 6).peak_ratio == Interval(3, 3, 3)
    assert cost("a", untouched, untouched, ((0, 4),) * 6).peak_ratio is None


def test_forward_passes_are_counted_and_the_model_is_as_before(tiny: Any) -> None:
    ids = torch.arange(12)[None]
    plain, before = logits(tiny, ids), state(tiny)
    made = {
        spec: make_method(spec) for spec in ("baseline", "attention-buckets:rag", "attention-buckets:group=2")
    }
    n_pairs: list[None] = []
    costs, left_out = measure_costs(tiny, made, BenchSettings(**FEW), on_pair=lambda: n_pairs.append(None))
    assert [found.forward_passes for found in costs] == [1, 7, 6] == [made[spec].streams for spec in made]
    assert [len(found.pairs) for found in costs] == [6] * 3
    assert len(n_pairs) == 3 * 7
    assert all(run.prefill > 0 < run.decode for found in costs for pair in found.pairs for run in pair)
    assert not left_out
    assert torch.equal(logits(tiny, ids), plain)
    assert state(tiny) == before


def test_the_peak_is_what_was_held_at_once() -> None:
    meter = peak_meter("cpu")
    if meter.how.startswith("not measured"):
        pytest.skip(meter.how)
    # Beyond 32 MiB the C library never gives out memory again that earlier tests have touched and freed.
    size = 48 * 2**20
    for _ in range(2):
        # One after the other they are never held together, and the second time counts like the first.
        meter.begin()
        for _ in range(3):
            torch.ones(size // 4)
        peak = meter.end()
        assert peak is not None
        assert 0.9 * size < peak < 1.6 * size
    meter.begin()
    assert (meter.end() or 0) < 0.2 * size


@pytest.mark.parametrize("name", shape_names())
def test_shapes_have_the_size_of_the_published_models(name: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**Shape.of(name).config, tie_word_embeddings=False)
    with torch.device("meta"):
        n_weights = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    # As their model cards and the index of their safetensors files give it.
    wanted = {"shape:qwen2.5-7b": 7_615_616_512, "shape:vicuna-7b": 6_738_415_616, "shape:tiny": 176_576}
    assert n_weights == wanted[name]


def test_a_part_of_a_shape_has_fewer_layers_of_the_same_size() -> None:
    whole, part = Shape.of("shape:vicuna-7b"), Shape.of("shape:vicuna-7b:layers=2")
    assert (part.n_layers, part.of_layers) == (2, 32) == (2, whole.n_layers)
    # The output layer weighs as much beside the layers as in the whole model.
    assert part.config == {**whole.config, "num_hidden_layers": 2, "vocab_size": 2000}
    assert Shape.of("shape:tiny:layers=3").config == Shape.of("shape:tiny").config


def test_random_weights_are_the_same_every_time(tiny: Any) -> None:
    again = random_model(Shape.of("shape:tiny"), "bfloat16", "cpu")
    assert again.dtype == torch.bfloat16
    assert again.model.rotary_emb.inv_freq.dtype == torch.float32
    same = random_model(Shape.of("shape:tiny"), "float32", "cpu")
    assert all(
        torch.equal(one, other) for one, other in zip(same.parameters(), tiny.parameters(), strict=True)
    )


def test_a_shape_without_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpes_evo.bench._shapes.free_memory", lambda _device: 2**30)
    with pytest.raises(ModelError, match="shape:vicuna-7b in float32, 25.1 GiB, but cpu has 1.0 GiB"):
        random_model(Shape.of("shape:vicuna-7b"), "float32", "cpu")


def test_usual_methods_that_do_not_go_with_a_model_are_left_out_and_named_ones_refused(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow = {"ms-poe": make_method("ms-poe:first_layer=9"), "pi": make_method("pi:2")}
    costs, left_out = measure_costs(tiny, shallow, BenchSettings(**FEW), refuse=False)
    assert [found.name for found in costs] == ["pi"]
    assert "got no such layers" in left_out["ms-poe"]
    with pytest.raises(UnsupportedModelError, match="got no such layers"):
        measure_costs(tiny, shallow, BenchSettings(**FEW))


@pytest.mark.parametrize(
    ("model", "methods", "settings", "message"),
    [
        ("shape:huge", None, {}, "one of the shapes shape:qwen2.5-7b, .* but got 'shape:huge'"),
        ("shape:tiny:layers=4", None, {}, "layers=N with N from 1 to 3, but got 'shape:tiny:layers=4'"),
        ("shape:tiny:layers=0", None, {}, "layers=N with N from 1 to 3, but got 'shape:tiny:layers=0'"),
        ("shape:tiny:layers=1:layers=2", None, {}, "layers=N with N from 1 to 3, but got"),
        ("shape:tiny:", None, {}, "layers=N with N from 1 to 3, but got 'shape:tiny:'"),
        ("shape:tiny", ("pie",), {}, "Expected a method, one of baseline"),
        ("shape:tiny", ("pi+lpes",), {}, "Expected pi with its factor"),
        ("shape:tiny", ("ms-poe+lpes",), {}, r"Expected \+lpes behind one of|Expected a method"),
        ("shape:tiny", ("lpes", "lpes"), {}, "every method once, but got lpes more than once"),
        ("shape:tiny", None, {"repeats": 5}, "key repeats, but got 5: .* greater than or equal to 6"),
        ("shape:tiny", None, {"clock": "sun"}, "key clock, but got 'sun': .*'wall' or 'processor'"),
        ("shape:tiny", None, {"new_tokens": 0}, "key new_tokens, but got 0"),
        (
            "shape:tiny",
            None,
            {"prompt_tokens": 1020},
            "within the window of shape:tiny, 1024 tokens, but got 1020",
        ),
    ],
)
def test_wrong_input_is_refused_in_one_line(model: str, methods: Any, settings: Any, message: str) -> None:
    with pytest.raises(LpesError, match=message) as refused:
        run_bench(model, methods, device="cpu", **settings)
    assert "\n" not in str(refused.value)


def test_the_report_shows_our_ratios_beside_those_of_the_paper() -> None:
    untouched = [1.0, 2, 4, 8, 16, 32]
    costs = tuple(
        cost(kind, [factor * t for t in untouched], untouched)
        for kind, factor in (("baseline", 1), ("lpes", 2), ("ms-poe", 3), ("moice", 6), ("pi", 1))
    )
    facts = {"model": "m", "parameters": 10, "dtype": "float32", "device_name": "d", "threads": None, "time": "t",
             "memory": "how", "settings": FEW, "n_layers": 2, "of_layers": 32}  # fmt: skip
    report = BenchReport(facts, 2, costs, {"yarn:4": "a reason"}, ())
    assert [(name, reported, found["total"].value) for name, reported, found in report.speeds()] == [
        ("untouched", 1.0, 0.5), ("ms-poe", 1.45, 1.5), ("moice", 2.42, 3)
    ]  # fmt: skip
    with (console := Console(width=120)).capture() as capture:
        print_bench(report, console)
    assert "m: a part of the model: 2 of 32 layers of full size" in capture.get()
    assert "2.42" in capture.get()
    assert "1.000 [1.000, 1.000]" in capture.get()
    assert "yarn:4 was left out: a reason" in capture.get()
    assert BenchReport(facts, 2, costs[:1], {}, ()).speeds() == []


def test_the_clock_of_the_processor_leaves_out_waiting(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each look at the wall clock is an hour later, as on a machine that is taken away in between.
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr("time.perf_counter", lambda: next(hours))
    seconds = {}
    for clock in ("wall", "processor"):
        costs, _ = measure_costs(tiny, {"pi": make_method("pi:2")}, BenchSettings(**FEW, clock=clock))
        seconds[clock] = costs[0].median("prefill")
    assert seconds["wall"] == 3600
    assert 0 < seconds["processor"] < 60


def test_the_clock_of_the_processor_is_refused_on_a_gpu(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = dataclasses.replace(load_model("tiny", device="cpu"), model=tiny, device="cuda:0")
    monkeypatch.setattr("lpes_evo.models.load_model", lambda *_, **_options: on_gpu)
    with pytest.raises(ConfigError, match="--clock processor on a CPU alone, but the model is on cuda:0"):
        run_bench("tiny", ("pi:2",), clock="processor")


def test_the_usual_methods_are_one_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: dict[str, Any] = {}

    def note(
        _model: Any, methods: dict[str, Any], *_: Any, **_options: Any
    ) -> tuple[list[Any], dict[str, str]]:
        measured.update(methods)
        return [], {}

    monkeypatch.setattr("lpes_evo.bench._measure.measure_costs", note)
    report = run_bench("shape:tiny", None, device="cpu", prompt_tokens=24)
    assert [method.name for method in measured.values()] == [*method_names()]
    assert "ntk:2:original=12" in measured
    assert not report.left_out


@pytest.mark.slow
def test_the_command_prints_and_saves_what_it_measured(tmp_path: Path) -> None:
    said = lpes_evo("bench", "shape:tiny", "--prompt-tokens", 24, "--new-tokens", 2, "--repeats", 6, "--device", "cpu",
                    "--methods", "baseline,lpes,ms-poe,moice",
                    "--output", "bench.json", cwd=tmp_path, check=0).stdout  # fmt: skip
    found = json.loads((tmp_path / "bench.json").read_text())
    names = [method["name"] for method in found["methods"]]
    assert names == ["baseline", "lpes", "ms-poe", "moice"]
    assert not found["left_out"]
    assert all(name in said for name in names)
    by_name = {method["name"]: method for method in found["methods"]}
    assert by_name["moice"]["attention_passes"] == 7
    assert by_name["lpes"]["forward_passes"] == 1
    for method in found["methods"]:
        assert len(method["pairs"]) == 6
        assert len(method["peaks"]) in (0, 6)
        for ratio in (method["over_untouched"][part] for part in ("prefill", "decode", "total")):
            assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert [(row["name"], row["reported"]) for row in found["lpes_times_as_fast_as"]] == [
        ("untouched", 1.0), ("ms-poe", 1.45), ("moice", 2.42)
    ]  # fmt: skip
    assert "the paper's" in said
    assert "routers that are not trained" in said
    again = run_here("bench", "shape:tiny", "--output", "bench.json", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr.startswith("Error: Expected a new file for the result, but bench.json exists")
