"""Evolutionary search of layer-specific rotary-position scales for language models.

The parts a script needs, each imported when it is first used, so that ``import lpes_evo`` loads neither torch nor
transformers nor matplotlib:

* `load_model` and `patch_rope`: a model, and its layers under their own scales.
* `Search`, `SearchSettings` and `drive`: the search, as ask and tell or as one call.
* `Scales` and `load_scales`: the result as a file.
* `lpes_evo.operators`: curve space, genome and DEAP operators, without torch.
* `lpes_evo.problems`: tasks, scores and fitness.
"""

from pathlib import Path

import lazy_loader

# In a clone, Python may find this folder before the installed package; operators and problems lie beside it there.
if not (Path(__file__).parent / "operators").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
