"""BenchReport: a benchmark, from the names of a model and of methods to the costs that are printed and saved."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpes_evo.accelerators import device_kind, is_gpu
from lpes_evo.bench._settings import BenchSettings
from lpes_evo.errors import ConfigError, LpesError
from lpes_evo.methods import Method, make_method

if TYPE_CHECKING:
    from lpes_evo.bench._costs import MethodCost
    from lpes_evo.statistics import Interval

PAPER = "arXiv 2606.27705"
PAPER_SPEEDS = {"untouched": 1.0, "ms-poe": 1.45, "moice": 2.42}
"""How many times as fast as each of these LPES is, according to the paper."""

_PARTS = ("prefill", "decode", "total")
_CLOCKS = {
    "wall": "wall clock",
    "processor": "processor seconds of the process, all threads together, without waiting for other programs",
}
_GPU_PROMPT, _CPU_PROMPT = 4096, 512


@dataclass(frozen=True)
class BenchReport:
    """The costs of methods on one model.

    Attributes:
        facts: The model, the device and the settings of the measurement.
        new_tokens: Number of tokens that were decoded.
        costs: The costs, in the order of the methods.
        left_out: The reason why a method was not measured, by its name.
        notes: What a reader must know about the methods.
    """

    facts: dict[str, Any]
    new_tokens: int
    costs: tuple["MethodCost", ...]
    left_out: dict[str, str]
    notes: tuple[str, ...]

    def speeds(self) -> list[tuple[str, float, dict[str, "Interval"]]]:
        """Return how many times as fast LPES is as the methods that the paper compares it with.

        Returns:
            For the untouched model, Ms-PoE and MoICE: the name, the ratio that the paper reports, and our ratios of
            prefill, decode and total. The list is empty where LPES was not measured.
        """
        from lpes_evo.bench._costs import speed_of
        from lpes_evo.statistics import order_interval

        lpes = next((cost for cost in self.costs if cost.kind == "lpes"), None)
        if lpes is None:
            return []

        # The pairs of LPES itself hold the untouched model, so that no second measurement adds its noise.
        untouched = {part: order_interval(1 / lpes.ratios(part)) for part in _PARTS}
        return [
            ("untouched", PAPER_SPEEDS["untouched"], untouched),
            *(
                (cost.name, PAPER_SPEEDS[cost.kind], {part: speed_of(lpes, cost, part) for part in _PARTS})
                for cost in self.costs
                if cost.kind in PAPER_SPEEDS
            ),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything as values that `json` can write."""
        from lpes_evo.bench._costs import ratio_to_json

        return {
            **self.facts,
            "methods": [cost.to_json(self.new_tokens) for cost in self.costs],
            "lpes_times_as_fast_as": [
                {
                    "name": name,
                    "here": {part: ratio_to_json(ratio) for part, ratio in found.items()},
                    "reported": reported,
                    "reported_by": PAPER,
                }
                for name, reported, found in self.speeds()
            ],
            "left_out": self.left_out,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class _Subject:
    """The model that is measured.

    Attributes:
        model: The model.
        window: Its window in tokens.
        dtype: Number format of its weights.
        device: The device that holds it.
        n_layers: Number of its decoder layers.
        of_layers: Number of decoder layers of the model that it is a part of.
    """

    model: Any
    window: int
    dtype: str
    device: str
    n_layers: int
    of_layers: int


def run_bench(
    model: str,
    methods: tuple[str, ...] | None,
    *,
    dtype: str = "auto",
    device: str = "auto",
    on_pair: Callable[[int], None] = lambda _n_pairs: None,
    **settings: Any,
) -> BenchReport:
    """Measure methods on a model.

    Args:
        model: Hub id, folder, ``.gguf`` file, ``tiny``, or a shape such as ``shape:vicuna-7b`` or
            ``shape:vicuna-7b:layers=2``, the latter with that many of its layers.
        methods: Specs of methods as `make_method` takes them; ``lpes`` and ``moice`` need no file here. With ``None``
            there is one of each, and those that do not fit the model are left out.
        dtype: Number format of the weights.
        device: Device of the model.
        on_pair: Called after each pair, with the total number of pairs.
        **settings: Fields of `BenchSettings`. By default the prompt has 4096 tokens on a GPU and 512 on a CPU, or as
            many as fit into the window.

    Returns:
        The report.

    Raises:
        ConfigError: A setting or a method is not valid, or the tokens exceed the window.
        LpesError: The model cannot be loaded, a method does not go with it, or memory does not suffice.
    """
    from lpes_evo.bench._measure import measure_costs

    # Whatever can be refused without the model is refused before it is loaded.
    chosen = BenchSettings(**settings)
    _check_names(methods)

    subject = _load(model, dtype, device)
    if chosen.clock != "wall" and is_gpu(subject.device):
        raise ConfigError(
            f"Expected --clock {chosen.clock} on a CPU alone, but the model is on {subject.device}, whose work the "
            "clock of the processor does not count. Leave --clock away, or give --device cpu."
        )

    if "prompt_tokens" not in settings:
        usual = _GPU_PROMPT if is_gpu(subject.device) else _CPU_PROMPT
        left = max(2, min(usual, subject.window - chosen.new_tokens))
        chosen = BenchSettings(**settings, prompt_tokens=left)
    if chosen.prompt_tokens + chosen.new_tokens > subject.window:
        raise ConfigError(
            f"Expected prompt and new tokens within the window of {model}, {subject.window} tokens, but got "
            f"{chosen.prompt_tokens} and {chosen.new_tokens}. Give fewer --prompt-tokens or --new-tokens."
        )

    with tempfile.TemporaryDirectory() as folder:
        made, left_out = _make_methods(methods, subject.model, chosen.prompt_tokens, Path(folder))
        n_pairs = len(made) * (chosen.repeats + 1)
        costs, refused = measure_costs(
            subject.model, made, chosen, refuse=methods is not None, on_pair=lambda: on_pair(n_pairs)
        )

    return BenchReport(
        facts=_facts(model, subject, chosen),
        new_tokens=chosen.new_tokens,
        costs=tuple(costs),
        left_out=left_out | refused,
        notes=tuple(note for kind, note in _NOTES.items() if any(_lacks_file(name) == kind for name in made)),
    )


_NOTES = {
    "lpes": "lpes: scales from 0.8 to 1.4 that are made up; the cost does not depend on their values",
    "moice": "moice: routers that are not trained, of the seven published bases; the cost does not depend on their "
    "values",
}


def _lacks_file(spec: str) -> str | None:
    """Return the method for which a spec names no file although the method needs one; ``None`` for all others."""
    if spec == "moice":
        return "moice"
    return "lpes" if re.search(r"(^|\+)lpes$", spec) else None


def _check_names(methods: tuple[str, ...] | None) -> None:
    """Refuse wrong specs before a model is loaded."""
    for spec in methods or ():
        lacks = _lacks_file(spec)
        if lacks is None:
            make_method(spec)
        elif spec not in ("moice", "lpes"):
            make_method(spec.removesuffix("+lpes"))

    twice = sorted({spec for spec in methods or () if (methods or ()).count(spec) > 1})
    if twice:
        raise ConfigError(f"Expected every method once, but got {', '.join(twice)} more than once.")


def _load(name: str, dtype: str, device: str) -> _Subject:
    """Load a model, or make one of random weights for the name of a shape."""
    from lpes_evo.bench._shapes import PREFIX, Shape, random_model
    from lpes_evo.models import load_model, refuse_group, resolve_device, resolve_dtype

    refuse_group(device, "a benchmark of methods")

    if not name.startswith(PREFIX):
        loaded = load_model(name, dtype=dtype, device=device)
        n_layers = loaded.n_layers
        return _Subject(loaded.model, loaded.max_length, loaded.dtype, loaded.device, n_layers, n_layers)

    shape = Shape.of(name)
    device = resolve_device(device)
    dtype = resolve_dtype(dtype, device, name)
    model = random_model(shape, dtype, device)
    return _Subject(
        model, model.config.max_position_embeddings, dtype, device, shape.n_layers, shape.of_layers
    )


def _make_methods(
    specs: tuple[str, ...] | None, model: Any, prompt_tokens: int, folder: Path
) -> tuple[dict[str, Method], dict[str, str]]:
    """Return the methods by their specs, and the reason why each other one was left out."""
    made: dict[str, Method] = {}
    left_out: dict[str, str] = {}

    for spec in specs or _usual(prompt_tokens):
        try:
            if spec == "moice":
                made[spec] = make_method(f"moice:{_untrained(model, folder)}")
            else:
                made[spec] = make_method(spec, scales=_scales(model))
        except LpesError as error:
            if specs is not None:
                raise
            left_out[spec] = str(error)

    return made, left_out


def _usual(prompt_tokens: int) -> tuple[str, ...]:
    """Return the specs of one of each method."""
    # Dynamic NTK changes nothing within the window, so that it is told a shorter one.
    ntk = f"ntk:2:original={prompt_tokens // 2}"
    return ("baseline", "lpes", "pi:1.5", ntk, "yarn:4", "attention-buckets", "ms-poe", "moice")


def _scales(model: Any) -> Any:
    """Return made-up scales from 0.8 to 1.4 in the depth of a model."""
    from lpes_evo.operators import CurveSpace
    from lpes_evo.rope import count_layers
    from lpes_evo.scales import Scales

    last = count_layers(model) - 1
    points = tuple((last * part / 3, 0.8 + 0.2 * part) for part in range(4))
    scales = CurveSpace(last + 1, len(points)).draw([points])[0]
    return Scales("made up", tuple(scales.tolist()), points, "none", (0.0,))


def _untrained(model: Any, folder: Path) -> Path:
    """Write untrained routers of MoICE for a model, and return the file."""
    from lpes_evo.methods import BASE_SETS
    from lpes_evo.methods.moice import new_routers, save_routers

    path = folder / "routers.safetensors"
    bases = tuple(base / 10000 for base in BASE_SETS["moice"])
    save_routers(new_routers(model, "bench", bases, len(bases), seed=0, trained={}), path)
    return path


def _facts(name: str, subject: _Subject, settings: BenchSettings) -> dict[str, Any]:
    """Return what identifies a measurement, as values that `json` can write."""
    import torch

    from lpes_evo.bench._memory import peak_meter
    from lpes_evo.models import device_name
    from lpes_evo.storage import describe

    weights = list(subject.model.parameters())
    times = {
        "cuda": "CUDA events",
        "mps": "wall clock, after all work of the GPU is done",
        "cpu": _CLOCKS[settings.clock],
    }
    return describe(
        model=name,
        n_layers=subject.n_layers,
        of_layers=subject.of_layers,
        parameters=sum(weight.numel() for weight in weights),
        weights_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        dtype=subject.dtype,
        device=subject.device,
        device_name=device_name(subject.device),
        threads=None if is_gpu(subject.device) else torch.get_num_threads(),
        attention=str(subject.model.config._attn_implementation),
        settings=settings.model_dump(),
        time=times[device_kind(subject.device)],
        memory=peak_meter(subject.device).how,
    )
