"""The promises of a method, each as a function that a tiny model and a method are put to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from lpes_evo.methods import Method, make_method
from lpes_evo.operators import CurveSpace
from lpes_evo.scales import Scales
from rope_families import tiny_model
from rope_promises import IDS, SHORT, close, generated, logits, padded_batch

POINTS = ((0.0, 0.8), (1.0, 1.2), (1.0, 1.5), (2.0, 1.6))
SCALES = Scales("other", tuple(CurveSpace(3, 4).draw([POINTS])[0].tolist()), POINTS, "needle", (0.0,))
ONES = Scales("other", (1.0,) * 3, tuple((x, 1.0) for x, _ in POINTS), "needle", (0.0,))

CHANGES: dict[str, dict[str, Any]] = {
    # A single frequency, as in a quarter of eight dimensions, has no base that could change.
    "gpt_neox": {"rotary_pct": 0.5},
    # Shorter than the prompts, so that caches forget.
    "mistral": {"sliding_window": 5},
    "gemma3_text": {"sliding_window": 6},
}


@dataclass(frozen=True)
class Case:
    """How a method joins the suite.

    Attributes:
        method: The method on a model, with a setting that changes something; the folder is for files.
        neutral: The method with a setting that changes nothing; ``None`` where a model has no such setting.
        shift_invariant: Whether logits do not depend on where positions begin.
        variant: Whether it is another setting of a method above, for which fewer families will do.
    """

    method: Callable[[Any, Path], Method]
    neutral: Callable[[Any, Path], Method | None]
    shift_invariant: bool = True
    variant: bool = False


def model_of(model_type: str) -> Any:
    return tiny_model(model_type, **CHANGES.get(model_type, {}))


@torch.no_grad()
def decoded(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    """Return the logits from token ``SHORT`` on, decoded token by token with a cache."""
    output = model(input_ids=ids[:, :SHORT], use_cache=True)
    steps = []
    for token in range(SHORT, ids.shape[1]):
        output = next_step(model, output, ids[:, token : token + 1])
        steps.append(output.logits)
    return torch.cat(steps, dim=1)


def next_step(model: Any, output: Any, ids: torch.Tensor) -> Any:
    key = "cache" if output.get("cache") is not None else "past_key_values"
    return model(input_ids=ids, use_cache=True, **{key: output[key]})


def enter(method: Method, model: Any) -> None:
    with method.apply(model):
        pass


def state(model: Any) -> dict[str, Any]:
    """Return what a method may have touched."""
    return {
        "hooks": sum(
            len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()
        ),
        "attributes": {path: sorted(module.__dict__) for path, module in model.named_modules()},
        "modules": {path: id(module) for path, module in model.named_modules()},
        "attention": model.config._attn_implementation,
        "config": str(model.config),
        "training": model.training,
    }


def neutral_setting_is_bit_equal(model: Any, case: Case, folder: Path) -> None:
    method = case.neutral(model, folder)
    if method is None:
        return
    plain, mask = logits(model), torch.ones_like(IDS)
    by_plain = generated(model, IDS, mask)
    with method.apply(model):
        assert torch.equal(logits(model), plain)
        assert torch.equal(generated(model, IDS, mask), by_plain)


def other_settings_change_the_logits(model: Any, case: Case, folder: Path) -> None:
    plain = logits(model)
    with case.method(model, folder).apply(model):
        assert not close(logits(model), plain, 1e-6)


def cached_decoding_equals_full_recomputation(model: Any, case: Case, folder: Path) -> None:
    with case.method(model, folder).apply(model) as handle:
        steps = decoded(model)
        with handle.prompts([SHORT, SHORT]):
            assert close(steps, logits(model)[:, SHORT:])


def left_padded_rows_equal_single_rows(model: Any, case: Case, folder: Path) -> None:
    ids, mask = padded_batch()
    with case.method(model, folder).apply(model):
        both = logits(model, ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
        first, second = logits(model, ids[:1, -SHORT:]), logits(model, ids[1:])
        assert close(both[0, -SHORT:], first[0])
        assert close(both[1], second[0])
        both = generated(model, ids, mask)
        assert close(both[:, 0], generated(model, ids[:1, -SHORT:], mask[:1, -SHORT:])[:, 0])
        assert close(both[:, 1], generated(model, ids[1:], mask[1:])[:, 0])


def leaving_restores_the_model(model: Any, case: Case, folder: Path) -> None:
    method = case.method(model, folder)
    plain, before = logits(model), state(model)
    with method.apply(model):
        logits(model)
    assert torch.equal(logits(model), plain)
    assert state(model) == before
    with pytest.raises(KeyError, match="planned"), method.apply(model):
        raise KeyError("planned")
    assert torch.equal(logits(model), plain)
    assert state(model) == before


def shifted_positions_leave_logits_unchanged(model: Any, case: Case, folder: Path) -> None:
    if not case.shift_invariant:
        return
    positions = torch.arange(IDS.shape[1])[None].expand_as(IDS)
    with case.method(model, folder).apply(model):
        shifted = logits(model, position_ids=positions + 9)
        assert close(shifted, logits(model, position_ids=positions), 3e-5)


def order_of_prompts_does_not_matter(model: Any, case: Case, folder: Path) -> None:
    long, short = IDS[:1], IDS[1:, :SHORT]
    with case.method(model, folder).apply(model):
        alone = logits(model, short)
        first = logits(model, long)
        assert torch.equal(logits(model, short), alone)
        assert torch.equal(logits(model, long), first)
        assert close(logits(model, IDS.flip(0)).flip(0), logits(model))


@torch.no_grad()
def requests_may_take_turns(model: Any, case: Case, folder: Path) -> None:
    with case.method(model, folder).apply(model):
        straight = decoded(model, IDS[:1, : SHORT + 1])
        one = model(input_ids=IDS[:1, :SHORT], use_cache=True)
        other = model(input_ids=IDS[1:], use_cache=True)
        kept = copy.deepcopy(one)
        assert torch.equal(next_step(model, one, IDS[:1, SHORT : SHORT + 1]).logits, straight)
        assert next_step(model, other, IDS[:1, :1]).logits.isfinite().all()
        assert torch.equal(next_step(model, kept, IDS[:1, SHORT : SHORT + 1]).logits, straight)


PROMISES: dict[str, Callable[[Any, Case, Path], None]] = {
    promise.__name__: promise
    for promise in (
        neutral_setting_is_bit_equal,
        other_settings_change_the_logits,
        cached_decoding_equals_full_recomputation,
        left_padded_rows_equal_single_rows,
        leaving_restores_the_model,
        shifted_positions_leave_logits_unchanged,
        order_of_prompts_does_not_matter,
        requests_may_take_turns,
    )
}


def spec(text: str, scales: Scales | None = SCALES) -> Callable[[Any, Path], Method]:
    return lambda _model, _folder: make_method(text, scales=scales)


def one_own_base(model: Any, _folder: Path) -> Method | None:
    from lpes_evo.methods.takeover import rope_bases

    bases = rope_bases(model)
    return make_method(f"attention-buckets:{bases[0]!r}") if len(bases) == 1 else None


def moice(bases: tuple[float, ...], top_k: int) -> Callable[[Any, Path], Method]:
    def make(model: Any, folder: Path) -> Method:
        from lpes_evo.methods.moice import new_routers, save_routers

        path = folder / f"{len(bases)}.safetensors"
        routers = new_routers(model, "tiny", bases, top_k, seed=0, trained={})
        save_routers(routers, path)
        return make_method(f"moice:{path}")

    return make


CASES: dict[str, Case] = {
    "lpes": Case(spec("lpes"), spec("lpes", ONES)),
    "pi": Case(spec("pi:1.5"), spec("pi:1")),
    "ntk": Case(spec("ntk:2:original=4"), spec("ntk:4")),
    "yarn": Case(spec("yarn:4"), spec("yarn:1")),
    "attention-buckets": Case(spec("attention-buckets:rag"), one_own_base),
    "ms-poe": Case(spec("ms-poe:first_layer=1"), spec("ms-poe:first_layer=1:smallest=1:largest=1")),
    "moice": Case(moice((1.0, 1.75, 2.5), 3), moice((1.0,), 1), shift_invariant=False),
    "pi+lpes": Case(spec("pi:1.5+lpes"), spec("pi:1+lpes", ONES), variant=True),
    "ntk+lpes": Case(spec("ntk:2:original=4+lpes"), spec("ntk:4+lpes", ONES), variant=True),
    "yarn+lpes": Case(spec("yarn:4+lpes"), spec("yarn:1+lpes", ONES), variant=True),
    "buckets in groups": Case(spec("attention-buckets:group=4:combine=probs"), one_own_base, variant=True),
    "ms-poe, fixed": Case(
        spec("ms-poe:order=normal"), spec("ms-poe:order=normal:smallest=1:largest=1"), variant=True
    ),
    "moice, two of three": Case(
        moice((1.0, 1.75, 2.5), 2), moice((1.0,), 1), shift_invariant=False, variant=True
    ),
}
