import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "matplotlib")


@pytest.mark.parametrize(
    "statement",
    [
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


def test_every_public_name_can_be_imported():
    import lpes_evo

    for name in lpes_evo.__all__:
        assert getattr(lpes_evo, name) is not None
    assert set(lpes_evo.__all__) <= set(dir(lpes_evo))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = lpes_evo.nothing


def test_in_a_clone_the_folder_that_hides_the_installed_package_has_all_of_it():
    clone = Path(__file__).parents[2]
    script = "import lpes_evo, lpes_evo.operators, lpes_evo.problems\n"
    script += "print(lpes_evo.__file__)\nprint(lpes_evo.operators.__file__)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=clone
    )
    package, operators = map(Path, result.stdout.split())
    assert package.parent == clone / "lpes_evo"
    assert operators.parent == clone / "operators"
