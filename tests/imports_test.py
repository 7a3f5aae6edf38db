import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "matplotlib")


@pytest.mark.parametrize(
    "statement",
    [
        "from lpes_evo.operators import CurveSpace, BezierGenome, cx_mix, fit_curve",
        "import lpes_evo",
        "import lpes_evo.operators",
        "import lpes_evo.problems",
        "from lpes_evo import Evaluator, Search, SearchSettings, drive, load_config, load_scales, Journal",
        "from lpes_evo.problems import TargetCurveProblem, BrachistochroneProblem",
        "import lpes_evo.cli",
    ],
)
def test_nothing_heavy_is_loaded_by(statement, tmp_path):
    script = f"{statement}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() == "[]"


WITHOUT_DEAP = """
import sys
sys.modules["deap"] = None
from pathlib import Path
import torch
from lpes_evo import Scales, load_model, load_scales, patch_rope
from lpes_evo.cli import main
from lpes_evo.methods import make_method

model = load_model("tiny")
ends = ((0.0, 1.1), (model.n_layers - 1.0, 1.4))
found = Scales("tiny", (1.1, 1.4), ((0.0, 1.1), (1.0, 1.4)), "recall", (0.0,)).at_depth(model.n_layers)
found.save(Path("scales.json"))
scales = load_scales("scales.json", model="tiny", n_layers=model.n_layers)
ids = torch.tensor([[5, 6, 7]])
with patch_rope(model.model, scales.scales):
    patched = model.model(ids).logits
with make_method("lpes", scales=scales).apply(model.model):
    assert torch.equal(model.model(ids).logits, patched)
sys.argv = ["lpes-evo", *"eval tiny --tasks recall:16 --scales scales.json --limit 2 --output out".split()]
main()
"""


def test_using_a_result_needs_no_search_library(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_DEAP], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "recall:16" in result.stdout
    assert (tmp_path / "out" / "results.json").is_file()


def test_every_public_name_can_be_imported():
    import lpes_evo

    for name in lpes_evo.__all__:
        assert getattr(lpes_evo, name) is not None
    assert set(lpes_evo.__all__) <= set(dir(lpes_evo))
    with pytest.raises(AttributeError, match="nothing"):
        _ = lpes_evo.nothing


def test_in_a_clone_the_folder_that_hides_the_installed_package_has_all_of_it():
    clone = Path(__file__).parents[1]
    script = "import lpes_evo, lpes_evo.operators, lpes_evo.problems\n"
    script += "print(lpes_evo.__file__)\nprint(lpes_evo.operators.__file__)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=clone
    )
    package, operators = map(Path, result.stdout.split())
    assert package.parent == clone / "lpes_evo"
    assert operators.parent == clone / "operators"
