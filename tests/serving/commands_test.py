"""The commands that hand scales over to servers, as a user runs them."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpes_evo import load_scales
from lpes_evo.cli import app
from lpes_evo.errors import LpesError
from serving_samples import RUN, save_scales

run = CliRunner().invoke


def test_vllm_args_are_quoted_for_a_shell() -> None:
    result = run(app, ["vllm-args", str(RUN)], catch_exceptions=False)
    *load_format, option, value = shlex.split(result.stdout)
    assert load_format == ["--load-format", "lpes"]
    assert option == "--hf-overrides"
    assert json.loads(value) == {"lpes_scales": list(load_scales(RUN).scales)}


def test_show_prints_scales_that_stand_alone(tmp_path: Path) -> None:
    save_scales(tmp_path / "scales.json", "someone/model")
    for source in (tmp_path, tmp_path / "scales.json"):
        result = run(app, ["show", str(source)], catch_exceptions=False)
        assert "found on someone/model with the task recall" in result.stdout
        assert "scales of 3 layers: 0.700 1.150 1.600" in result.stdout


def test_show_and_vllm_args_ask_the_hub_for_what_is_not_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lpes_evo.hub.hub_has_address", lambda: False)
    for command in ("show", "vllm-args"):
        result = run(app, [command, "nobody/scales"])
        assert "the hub cannot be reached" in str(result.exception)


@pytest.mark.parametrize("path", ["runs/typo", "found/typo", "other/scales.json", "other/model.gguf"])
def test_a_path_that_does_not_exist_is_told_without_asking_the_hub(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    (tmp_path / "found").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lpes_evo.hub.hub_has_address", lambda: pytest.fail("the hub was asked"))
    for command in (["show", path], ["vllm-args", path], ["export", "tiny", "out", "--scales", path]):
        result = run(app, command)
        assert isinstance(result.exception, LpesError)
        assert path in str(result.exception)
        assert "hub" not in str(result.exception)


def test_export_takes_a_folder_or_a_gguf_file() -> None:
    for arguments in ([], ["out", "--gguf", "out.gguf"]):
        result = run(app, ["export", "tiny", "--scales", str(RUN), *arguments])
        assert "Expected a folder OUT or --gguf FILE" in str(result.exception)
    result = run(app, ["export", "tiny", "--scales", str(RUN), "out", "--for-changed-loader"])
    assert "only with --gguf" in str(result.exception)
    result = run(app, ["export", "tiny.gguf", "--scales", str(RUN), "--gguf", "out.gguf"])
    assert "Expected --for-changed-loader beside --gguf" in str(result.exception)
