"""The plugin of vLLM where vLLM is not installed, or is one that the plugin does not know."""

import importlib.metadata
import logging
import subprocess
import sys
from types import ModuleType

from lpes_evo.serving import register

PLUGINS = "vllm.general_plugins"


def test_the_plugin_is_found_by_its_entry_point():
    (found,) = importlib.metadata.entry_points(group=PLUGINS, name="lpes")
    assert found.load() is register


def test_importing_the_plugin_loads_neither_torch_nor_vllm(tmp_path):
    script = "import sys, lpes_evo.serving._vllm\nprint([n for n in ('torch', 'vllm', 'numpy') if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() in ("[]", "['numpy']")


def test_a_vllm_that_has_moved_its_classes_gives_one_clear_line(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    with caplog.at_level(logging.INFO):
        register()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "Scales are NOT applied" in record.getMessage()
    assert "vllm.engine" in record.getMessage()
