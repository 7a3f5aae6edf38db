"""Methods by name: what a text gives, and what it is told where it is wrong."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from lpes_evo.errors import ConfigError, ScalesError
from lpes_evo.methods import AttentionBuckets, Lpes, MsPoe, Yarn, make_method, method_names, scales_file
from method_promises import POINTS, SCALES


@pytest.mark.parametrize(
    "spec",
    [
        "baseline",
        "pi:1.5",
        "ntk:2:original=4096",
        "yarn:4:attention_factor=1",
        "attention-buckets",
        "attention-buckets:rag:combine=probs:group=2",
        "attention-buckets:10000/17500",
        "ms-poe:order=released",
        "moice:C:routers.safetensors:top_k=2",
    ],
)
def test_a_spec_is_given_back(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "C:routers.safetensors").touch()
    method = make_method(spec)
    assert method.spec == spec
    # As on the way to a worker.
    assert pickle.loads(pickle.dumps(method)) == method  # noqa: S301


def test_every_name_is_tried_in_this_suite() -> None:
    from method_promises import CASES

    assert {*method_names()} - {"baseline"} <= {*CASES}


def test_settings_reach_the_method() -> None:
    assert make_method("yarn:4:beta_fast=128:beta_slow=2") == Yarn(factor=4, beta_fast=128, beta_slow=2)
    assert make_method("ms-poe:smallest=1.1:first_layer=0") == MsPoe(smallest=1.1, first_layer=0)
    assert AttentionBuckets(bases=(10000, 20000)).streams == 2
    assert make_method("attention-buckets:rag").streams == 7


def test_scales_come_from_a_file_or_from_the_caller(tmp_path: Path) -> None:
    SCALES.save(tmp_path / "scales.json")
    for spec in (f"lpes:{tmp_path / 'scales.json'}", f"lpes:{tmp_path}"):
        assert make_method(spec) == Lpes(scales=SCALES)
        assert scales_file(spec) == spec[5:]
    assert make_method(f"yarn:4+lpes:{tmp_path}") == Yarn(factor=4, scales=SCALES)
    assert make_method("yarn:4+lpes", scales=SCALES) == Yarn(factor=4, scales=SCALES)
    assert scales_file(f"yarn:4+lpes:{tmp_path}") == str(tmp_path)
    assert scales_file("yarn:4+lpes") is None
    assert scales_file("lpes") is None
    record = make_method("lpes", scales=SCALES).record(5)
    assert len(record["scales"]) == 5
    assert record["found_at_depth"] == len(SCALES.scales) == POINTS[-1][0] + 1


def test_records_say_whose_version_was_used() -> None:
    assert make_method("attention-buckets").record(3)["combine_follows"] == "released code"
    assert make_method("attention-buckets:combine=probs").record(3)["combine_follows"] == "paper"
    assert make_method("ms-poe").record(3)["order_follows"] == "paper"
    assert make_method("ms-poe:order=released").record(3)["order_follows"] == "released code"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pie:2", "Expected a method, one of baseline, lpes, pi, .* but got 'pie:2'"),
        ("", "Expected a method, one of baseline"),
        ("pi", "Expected pi with its factor, as in pi:FACTOR"),
        ("pi:zero", "Method 'pi:zero': .* factor, but got 'zero'"),
        ("pi:0", "greater than or equal to 0.000001"),
        ("pi:inf", "finite"),
        ("pi:2:size=3", "settings of pi, each once, but got 'size'.*Known settings: factor"),
        ("ms-poe:2", "settings as KEY=VALUE in 'ms-poe:2'.*smallest, largest, order, first_layer"),
        ("ms-poe:largest=1", "Expected largest to be at least smallest = 1.2, but got 1"),
        ("ms-poe:order=best", "'rank', 'released' or 'normal'"),
        ("ms-poe:order=rank:order=rank", "each once, but got 'order'"),
        ("attention-buckets:code", "tool or rag, or numbers above 1, but got 'code'"),
        ("attention-buckets:10000/nan", "numbers above 1"),
        ("ntk:0.5", "greater than or equal to 1"),
        ("moice", "Expected moice with its routers"),
        ("lpes", "Expected scales for 'lpes', but none are given"),
        ("yarn:4+lpes", "Expected scales for"),
        ("ms-poe+lpes", r"Expected \+lpes behind one of pi, ntk, yarn"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        make_method(spec)
    assert "\n" not in str(refused.value)


def test_a_missing_file_of_scales_is_refused() -> None:
    with pytest.raises(ScalesError, match="Expected a scales file at /nowhere"):
        make_method("pi:2+lpes:/nowhere")


def test_making_methods_loads_no_torch(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    program = (
        "import sys; from lpes_evo.methods import make_method, method_names\n"
        "for name in ('baseline', 'pi:2', 'ntk:2', 'yarn:2', 'attention-buckets', 'ms-poe', 'moice:file'):\n"
        "    make_method(name).spec\n"
        "assert not {'torch', 'transformers', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
