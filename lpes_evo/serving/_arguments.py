"""Arguments: what a server must be started with to apply scales."""

import shlex

from lpes_evo.scales import Scales
from lpes_evo.storage import to_json

CONFIG_KEY = "lpes_scales"
"""Key of a ``config.json``, and of the overrides of vLLM, under which a list of one scale for each layer stands."""


def vllm_arguments(scales: Scales) -> str:
    """Return the arguments of ``vllm serve`` that hand scales over by value.

    vLLM must have the plugin of this package: the plugin alone knows the load format ``lpes``, so that vLLM stops where
    the plugin is missing. The values themselves are handed over, and no path: the key of vLLM's cache of compiled code
    holds values, and a path would hide a changed file.

    Args:
        scales: The scales.

    Returns:
        The arguments, quoted for a shell.
    """
    return f"--load-format lpes --hf-overrides {shlex.quote(to_json({CONFIG_KEY: list(scales.scales)}))}"
