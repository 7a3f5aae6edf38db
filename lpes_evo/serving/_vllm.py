"""Plugin of vLLM: models whose config holds ``lpes_scales`` run every decoder layer under its own scale.

vLLM finds `register` by its entry point and calls it in every process, before a model is made. Neither vllm nor torch
is imported before that.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from lpes_evo.errors import ScalesError, UnsupportedModelError

if TYPE_CHECKING:
    import torch

__all__ = ["CONFIG_KEY", "LOAD_FORMAT", "register"]

CONFIG_KEY = "lpes_scales"
"""Key of a model's config under which a list of one scale for each layer stands."""

LOAD_FORMAT = "lpes"
"""Load format that only the plugin knows, so that vLLM without the plugin refuses to start."""

_EXPORTED = "lpes_"
"""Beginning of the model type of exported folders, whose own code applies the scales."""

_MARK = "_lpes_plugin"

_logger = logging.getLogger("vllm.lpes_evo")


def register() -> None:
    """Make vLLM apply the scales of a model's config; a second call does nothing.

    Models without scales are left alone. Where this vLLM has moved what the plugin builds on, one line of the log says
    so, and the load format ``lpes`` stays unknown.
    """
    try:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader import register_model_loader
        from vllm.model_executor.model_loader.base_loader import BaseModelLoader
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

        from lpes_evo.serving import _vllm_rotary

        make_model, make_config = BaseModelLoader.create_model, EngineArgs.create_engine_config
        _vllm_rotary.known_kinds()
    except (ImportError, AttributeError) as error:
        _logger.error(
            "Expected a vLLM that the plugin of lpes-evo knows, but it has moved a class (%s). Scales are NOT applied. "
            "Install the version that lpes-evo names in its extra [vllm], or export the model.",
            error,
        )
        return
    if hasattr(make_model, _MARK):
        return

    @functools.wraps(make_config)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The first process that a user starts stops here, before it starts others whose errors are hard to find.
        made = make_config(self, *args, **kwargs)
        _check_config(made, made.model_config)
        return made

    @functools.wraps(make_model)
    def create_model(
        self: Any, vllm_config: Any, model_config: Any, *args: Any, **kwargs: Any
    ) -> torch.nn.Module:
        scales = _check_config(vllm_config, model_config)
        model: torch.nn.Module = make_model(self, vllm_config, model_config, *args, **kwargs)
        if scales is not None:
            _vllm_rotary.scale_layers(model, scales)
            _logger.info(
                "Rotary positions are divided by a scale in each of %d layers: %s", len(scales), scales
            )
        elif _is_exported(model_config):
            _vllm_rotary.refuse_rotary_modules(model)
        return model

    class LpesModelLoader(DefaultModelLoader):  # type: ignore[misc]
        """Loads weights as by default, of a model whose config holds scales."""

        def __init__(self, load_config: Any) -> None:
            import dataclasses

            super().__init__(dataclasses.replace(load_config, load_format="auto"))

    setattr(create_model, _MARK, True)
    BaseModelLoader.create_model = create_model
    EngineArgs.create_engine_config = create_engine_config
    register_model_loader(LOAD_FORMAT)(LpesModelLoader)


def _is_exported(model_config: Any) -> bool:
    """Return whether a model is an exported folder, whose own code applies its scales."""
    return str(getattr(model_config.hf_config, "model_type", "")).startswith(_EXPORTED)


def _check_config(vllm_config: Any, model_config: Any) -> list[float] | None:
    """Return the scales that the plugin must apply to a model, ``None`` for a model without scales.

    Args:
        vllm_config: What vLLM was started with.
        model_config: The model, which may be the draft model of speculative decoding.

    Raises:
        ScalesError: The scales are not one positive finite number for each layer, or stand under another key, or beside
            those of an exported folder; or there are none, and the load format asks for them.
        UnsupportedModelError: The plugin cannot apply scales to this kind of model, or under these options.
    """
    from lpes_evo.scales import check_scales

    config, text_config = model_config.hf_config, model_config.hf_text_config
    # The draft model of speculative decoding is loaded in the same format, and may go without scales.
    is_draft = getattr(model_config, "runner", None) == "draft"
    is_asked = vllm_config.load_config.load_format == LOAD_FORMAT and not is_draft
    overrides = model_config.hf_overrides if isinstance(model_config.hf_overrides, dict) else {}

    if _is_exported(model_config):
        if CONFIG_KEY in overrides:
            raise ScalesError(
                f"Expected no {CONFIG_KEY} beside an exported model, which holds its own scales, but got some in the "
                "overrides. Leave them out, or serve the model that was exported."
            )
        return None

    wrong = sorted({key for found in (config, text_config) for key in vars(found) if key.startswith("lpes")})
    wrong = [key for key in wrong if key != CONFIG_KEY]
    if wrong:
        raise ScalesError(
            f"Expected scales under {CONFIG_KEY} in the model's config, but got {', '.join(wrong)}. Rename the key."
        )

    given = getattr(config, CONFIG_KEY, getattr(text_config, CONFIG_KEY, None))
    if given is None:
        if is_asked:
            raise ScalesError(
                f"Expected {CONFIG_KEY} in the model's config with --load-format {LOAD_FORMAT}, but got none. Hand the "
                f"scales over: --hf-overrides '{{\"{CONFIG_KEY}\": [...]}}'."
            )
        return None
    if not isinstance(given, (list, tuple)):
        raise ScalesError(
            f"Expected {CONFIG_KEY} to be a list of numbers, one for each layer, but got {given!r:.80}. Hand over the "
            "values of a scales.json, not its path."
        )
    n_layers = getattr(text_config, "num_hidden_layers", None)
    if n_layers is None:
        raise UnsupportedModelError(
            f"Expected a model whose config states num_hidden_layers, but {config.model_type} states none. Its layers "
            "cannot be scaled one by one."
        )
    scales = check_scales(given, n_layers)
    if scales.ndim != 1:
        raise ScalesError(
            f"Expected {CONFIG_KEY} to be one list of {n_layers} numbers, but got a list of lists of shape "
            f"{scales.shape}. A server runs all requests under the same scales."
        )
    _refuse_unknown(vllm_config, model_config)
    return [float(scale) for scale in scales]


def _refuse_unknown(vllm_config: Any, model_config: Any) -> None:
    """Refuse the kinds of models and the options for which it is not known that scales reach every layer.

    Raises:
        UnsupportedModelError: There is one.
    """
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    if model_config.is_multimodal_model:
        raise UnsupportedModelError(
            f"Expected a model of text alone for {CONFIG_KEY}, but {model_config.architecture} takes other inputs too. "
            "Serve its text model."
        )
    if model_config.using_transformers_backend():
        raise UnsupportedModelError(
            f"Expected a model that vLLM has code of its own for, but {model_config.architecture} runs through "
            "transformers, whose rotary embeddings the plugin does not scale. Export the model with its scales, and "
            "serve the exported folder."
        )
    n_stages = vllm_config.parallel_config.pipeline_parallel_size
    if n_stages > 1:
        raise UnsupportedModelError(
            f"Expected all layers in one stage for {CONFIG_KEY}, but got --pipeline-parallel-size {n_stages}. Use "
            "--tensor-parallel-size instead."
        )
    loader = type(get_model_loader(vllm_config.load_config))
    if loader.load_model is not BaseModelLoader.load_model:
        raise UnsupportedModelError(
            f"Expected a load format whose models the plugin sees, but {vllm_config.load_config.load_format} makes "
            f"them by {loader.__name__} alone. Use --load-format {LOAD_FORMAT}."
        )
