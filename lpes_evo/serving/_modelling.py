"""Modelling code: the generated file that lets transformers alone run a model under its scales."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata, resources
from string import Template
from typing import TYPE_CHECKING, Any

from lpes_evo.errors import UnsupportedModelError

if TYPE_CHECKING:
    import torch

MODULE = "modeling_lpes"
"""Name of the generated module."""
PREFIX = "lpes_"
"""What is put before the model type, so that the folder is refused where its code is not trusted."""

_BASE_CLASS = """
class $Base(FilledAsInTransformers, $base):
    config_class = $Config

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        put_scales_on(self, "$decoder_of_base", config.lpes_scales)

"""


@dataclass(frozen=True)
class ModellingCode:
    """The code of a model under scales, and the entries of ``config.json`` that name it.

    Attributes:
        source: Text of the module ``modeling_lpes``.
        config: ``model_type``, ``architectures`` and ``auto_map``.
    """

    source: str
    config: dict[str, Any]


def modelling_code(model: Any) -> ModellingCode:
    """Write the code that runs a model of this architecture under scales, where lpes-evo is not installed.

    Args:
        model: A causal language model of transformers, without a wrapper.

    Returns:
        The code. It subclasses the classes of the model, and hooks its rotary modules and layers as `patch_rope` does.

    Raises:
        UnsupportedModelError: The model cannot be scaled layer by layer, or not by such code: its rotary type follows
            the length of the input, its layers own their rotary modules, or its classes are no part of transformers.
    """
    import torch

    from lpes_evo.rope import find_structure, rotary_layers

    structure = find_structure(model)
    check_exportable(model, structure)
    decoder = structure.decoder
    decoder_path = _path_of(decoder, model)
    layers_path = next(
        name
        for name, child in decoder.named_children()
        if isinstance(child, torch.nn.ModuleList) and tuple(child) == structure.layers
    )
    base = model.base_model
    base_path = "" if base is model else _path_of(base, model)
    has_base = base is not model and f"{decoder_path}.".startswith(f"{base_path}.")

    classes = {"config": type(model.config), "causal": type(model)} | (
        {"base": type(base)} if has_base else {}
    )
    names = {key: kind.__name__ for key, kind in classes.items()}
    own_names = {"Config": f"Lpes{names['config']}", "Causal": f"Lpes{names['causal']}"}
    if has_base:
        own_names["Base"] = f"Lpes{names['base']}"
    values = {
        **names,
        **own_names,
        "version": metadata.version("lpes-evo"),
        "imports": "\n".join(sorted(_import_of(kind) for kind in classes.values())),
        "layers": layers_path,
        "rotary": repr(tuple(_path_of(module, decoder) for module in structure.shared)),
        "rotated": repr(frozenset(rotary_layers(model))),
        "model_type": f"{PREFIX}{model.config.model_type}",
        "decoder_of_causal": decoder_path,
        "decoder_of_base": decoder_path.removeprefix(base_path).removeprefix("."),
    }
    original_names = {
        "model_type": model.config.model_type,
        "Causal": names["causal"],
        "Base": names.get("base"),
    }
    values["conversions"] = repr(
        tuple((original, values[key]) for key, original in original_names.items() if key in values)
    )
    values["base_class"] = Template(_BASE_CLASS).substitute(values) if has_base else ""
    template = resources.files("lpes_evo.serving").joinpath(f"{MODULE}.py.in").read_text(encoding="utf-8")

    auto_map = {"AutoConfig": own_names["Config"], "AutoModelForCausalLM": own_names["Causal"]}
    if has_base:
        auto_map["AutoModel"] = own_names["Base"]
    config = {
        "model_type": values["model_type"],
        "architectures": [own_names["Causal"]],
        "auto_map": {key: f"{MODULE}.{name}" for key, name in auto_map.items()},
    }
    return ModellingCode(Template(template).substitute(values), config)


def check_exportable(model: Any, structure: Any) -> None:
    """Refuse an architecture that generated code cannot run under scales.

    Args:
        model: The model.
        structure: Its layers and rotary modules.

    Raises:
        UnsupportedModelError: It is one; the message says why.
    """
    from lpes_evo.rope import indexes_table, is_dynamic, measures_length, rope_types

    name = type(model).__name__
    if not type(model).__module__.startswith("transformers."):
        raise UnsupportedModelError(
            f"Expected a model whose classes are part of transformers, but {name} runs code that comes with it. Serve "
            "it with patch_rope instead."
        )
    if structure.own:
        raise UnsupportedModelError(
            f"Expected a model whose layers share their rotary module, but each layer of {name} has its own. Serve it "
            "with patch_rope instead."
        )
    for module in structure.shared:
        if indexes_table(module):
            raise UnsupportedModelError(
                f"Expected a rotary module that computes its tables, but {type(module).__name__} of {name} looks whole "
                "positions up in one. Serve it with patch_rope instead."
            )
        kinds = ", ".join(sorted(rope_types(module)))
        if is_dynamic(module) or (rope_types(module) != {"default"} and measures_length(module)):
            raise UnsupportedModelError(
                f"Expected a rotary type with fixed frequencies, but {type(module).__name__} of {name} has the type "
                f"{kinds}, which measures the length of the input by the positions it sees, and would measure scaled "
                "ones. Serve it with patch_rope instead, or set another rotary type in its config.json."
            )


def _path_of(module: torch.nn.Module, owner: torch.nn.Module) -> str:
    """Return the name of a module inside another."""
    return str(next(name for name, found in owner.named_modules() if found is module))


def _import_of(kind: type) -> str:
    """Return the line that imports a class of transformers."""
    import transformers

    module = "transformers" if getattr(transformers, kind.__name__, None) is kind else kind.__module__
    return f"from {module} import {kind.__name__}"
