"""The committed notebooks, without executing them, and the script that executes them."""

import ast
import importlib.util
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {
    name: ROOT / "notebooks" / f"{name}.ipynb"
    for name in (
        "01_search_and_convergence",
        "02_representational_drift",
        "03_operators_for_other_curves",
    )
}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("run_notebooks", ROOT / "benchmarks" / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def executed(script, tmp_path_factory):
    """A notebook that was executed and written by the script."""
    path = new_notebook(
        tmp_path_factory.mktemp("notebooks"),
        "import matplotlib.pyplot as plt\nprint('one')\nprint('two')",
        "figure, axes = plt.subplots()\nplt.show()",
    )
    assert script.main(["--write", str(path)]) == 0
    return path


def new_notebook(folder, *codes):
    cells = [nbformat.v4.new_code_cell(code) for code in codes]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "made.ipynb")
    return folder / "made.ipynb"


def read(path):
    return nbformat.read(path, as_version=4)


def imported_modules(notebook):
    """Yield the full name of everything that a notebook imports."""
    for cell in notebook.cells:
        lines = cell.source.splitlines() if cell.cell_type == "code" else []
        for node in ast.walk(ast.parse("\n".join(line for line in lines if not line.startswith("%")))):
            if isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


def test_the_three_notebooks_are_all_there_is():
    assert sorted((ROOT / "notebooks").glob("*.ipynb")) == sorted(NOTEBOOKS.values())


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_committed_notebook_shows_what_its_code_gave(script, name):
    notebook = read(NOTEBOOKS[name])
    assert script.flaws(notebook) == []
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) >= 3


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_uses_the_public_interface_alone(name):
    ours = [module for module in imported_modules(read(NOTEBOOKS[name])) if module.startswith("lpes_evo")]
    assert ours
    assert not [module for module in ours if "._" in module]


def test_the_operators_are_shown_without_the_rest_of_the_package():
    modules = list(imported_modules(read(NOTEBOOKS["03_operators_for_other_curves"])))
    assert {module for module in modules if module.startswith("lpes_evo")} == {
        "lpes_evo.operators.CurveSpace"
    }
    assert not [module for module in modules if module.split(".")[0] in ("torch", "transformers")]


def test_written_outputs_are_whole_and_name_no_version_of_python(script, executed):
    notebook = read(executed)
    texts, picture = (cell.outputs for cell in notebook.cells)
    assert [output.text for output in texts] == ["one\ntwo\n"]
    assert "image/png" in picture[0].data
    assert "version" not in notebook.metadata.language_info
    assert script.flaws(notebook) == []


def test_outputs_that_come_out_otherwise_are_told(script, executed, tmp_path, capsys):
    notebook = read(executed)
    notebook.cells[0].outputs[0].text = "three\n"
    nbformat.write(notebook, tmp_path / "made.ipynb")
    assert script.main([str(tmp_path / "made.ipynb")]) == 0
    assert "made.ipynb: other outputs than in the file in cells 1\n" in capsys.readouterr().out


def test_code_that_was_changed_after_its_outputs_is_a_flaw(script, executed):
    notebook = read(executed)
    notebook.cells[1].source += "\n"
    assert script.flaws(notebook) == ["the outputs belong to other code"]


def test_text_may_change_without_new_outputs(script, executed):
    notebook = read(executed)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell("More words."))
    assert script.flaws(notebook) == []


@pytest.mark.parametrize(
    ("output", "flaw"),
    [
        (
            nbformat.v4.new_output("stream", name="stderr", text="UserWarning"),
            "cell 2 wrote to stderr",
        ),
        (
            nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[]),
            "cell 2 ended with an error",
        ),
        (
            nbformat.v4.new_output("stream", text="written to /home/someone/runs"),
            "the output of cell 2 names '/home/', a place on one machine",
        ),
        (
            nbformat.v4.new_output("execute_result", {"text/plain": "<object at 0x7f3a5c0d1e20>"}),
            "the output of cell 2 names '0x7f3a5c0d1e20', a place on one machine",
        ),
        (
            nbformat.v4.new_output("display_data", {"image/png": "A" * 1_000_000}),
            "bytes, more than 1000000",
        ),
    ],
)
def test_outputs_that_no_reader_should_see_are_flaws(script, executed, output, flaw):
    notebook = read(executed)
    notebook.cells[1].outputs.append(output)
    (found,) = script.flaws(notebook)
    assert found.endswith(flaw)


def test_cells_that_were_executed_out_of_order_are_a_flaw(script, executed):
    notebook = read(executed)
    notebook.cells[0].execution_count = 7
    assert script.flaws(notebook) == ["the cells were not executed in their order"]


def test_a_failing_cell_fails_the_notebook_and_leaves_the_file_as_it_was(script, tmp_path, capsys):
    path = new_notebook(tmp_path, "raise ValueError('no such number')")
    before = path.read_bytes()
    assert script.main(["--write", str(path)]) == 1
    assert "ValueError: no such number" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_warning_is_not_written_into_a_notebook(script, tmp_path, capsys):
    path = new_notebook(tmp_path, "import warnings\nwarnings.warn('old')")
    before = path.read_bytes()
    assert script.main(["--write", str(path)]) == 1
    assert "made.ipynb: cell 1 wrote to stderr. Mend the notebook.\n" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_name_that_leads_to_no_notebook_is_one_line(script, tmp_path, capsys):
    assert script.main([str(tmp_path / "none.ipynb")]) == 1
    assert capsys.readouterr().err == f"Expected notebooks, but found none at {tmp_path / 'none.ipynb'}.\n"
