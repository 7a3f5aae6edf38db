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
from typing import TYPE_CHECKING

from lpes_evo._lazy import lazy_names

if TYPE_CHECKING:
    from lpes_evo.config import RunConfig, SearchSettings, load_config
    from lpes_evo.errors import LpesError
    from lpes_evo.evaluation import Evaluation
    from lpes_evo.evaluator import Evaluator
    from lpes_evo.folder import RunFolder
    from lpes_evo.journal import Journal
    from lpes_evo.loop import drive
    from lpes_evo.models import LoadedModel, load_model
    from lpes_evo.progress import Reporter
    from lpes_evo.rope import patch_rope
    from lpes_evo.run import run_search
    from lpes_evo.scales import Scales, load_scales
    from lpes_evo.search import Search

__all__ = [
    "Evaluation",
    "Evaluator",
    "Journal",
    "LoadedModel",
    "LpesError",
    "Reporter",
    "RunConfig",
    "RunFolder",
    "Scales",
    "Search",
    "SearchSettings",
    "drive",
    "load_config",
    "load_model",
    "load_scales",
    "patch_rope",
    "run_search",
]

_MODULES = {
    "Evaluation": "evaluation",
    "Evaluator": "evaluator",
    "Journal": "journal",
    "LoadedModel": "models",
    "LpesError": "errors",
    "Reporter": "progress",
    "RunConfig": "config",
    "RunFolder": "folder",
    "Scales": "scales",
    "Search": "search",
    "SearchSettings": "config",
    "drive": "loop",
    "load_config": "config",
    "load_model": "models",
    "load_scales": "scales",
    "patch_rope": "rope",
    "run_search": "run",
}

# In a clone, Python may find this folder before the installed package; operators and problems lie beside it there.
if not (Path(__file__).parent / "operators").is_dir():
    __path__.append(str(Path(__file__).parents[1]))

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
