"""Models that keep their scales: written beside the weights, read again without being told, never lost in silence."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import lpes_evo.hub as hub
import lpes_evo.scales as scales_module
from lpes_evo import from_pretrained, load_scales, patch_rope
from lpes_evo.errors import ModelError, ScalesError
from lpes_evo.rope import unpatch_rope
from rope_families import tiny_model
from rope_promises import close, logits
from serving_samples import save_model, save_scales


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """Return a tiny Llama that is saved in ``model``, and the scales that are saved in ``scales.json``."""
    model = save_model("llama", tmp_path / "model")
    return model, save_scales(tmp_path / "scales.json", tmp_path / "model")


def expected(model: Any, scales: Any) -> torch.Tensor:
    with patch_rope(model, scales):
        return logits(model)


def test_scales_are_saved_and_read_again_without_being_told(saved: Any, tmp_path: Path) -> None:
    plain, scales = saved
    model = from_pretrained(tmp_path / "model", scales=tmp_path / "scales.json")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert close(logits(model), expected(plain, scales.scales))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save_pretrained(tmp_path / "kept")
    assert load_scales(tmp_path / "kept") == scales
    again = from_pretrained(tmp_path / "kept")
    assert close(logits(again), expected(plain, scales.scales))
    again.save_pretrained(tmp_path / "third")
    assert load_scales(tmp_path / "third") == scales


def test_scales_may_be_an_object_or_one_number_for_each_layer(saved: Any, tmp_path: Path) -> None:
    plain, scales = saved
    assert close(logits(from_pretrained(tmp_path / "model", scales=scales)), expected(plain, scales.scales))
    model = from_pretrained(tmp_path / "model", scales=[0.8, 1.3, 0.9])
    model.save_pretrained(tmp_path / "kept")
    assert close(logits(from_pretrained(tmp_path / "kept")), expected(plain, [0.8, 1.3, 0.9]))


def test_a_copy_keeps_its_scales_too(saved: Any, tmp_path: Path) -> None:
    import copy

    twin = copy.deepcopy(from_pretrained(tmp_path / "model", scales=saved[1]))
    twin.save_pretrained(tmp_path / "kept")
    assert load_scales(tmp_path / "kept") == saved[1]


def test_without_the_patch_no_scales_are_saved(saved: Any, tmp_path: Path) -> None:
    model = from_pretrained(tmp_path / "model", scales=saved[1])
    unpatch_rope(model)
    model.save_pretrained(tmp_path / "bare")
    assert not (tmp_path / "bare" / "scales.json").exists()


def test_an_adapter_keeps_the_scales_of_its_base(saved: Any, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    scales = saved[1]
    model = from_pretrained(tmp_path / "model", scales=scales)
    torch.manual_seed(1)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config).eval()
    wanted = logits(adapted)
    adapted.save_pretrained(tmp_path / "adapter")
    assert load_scales(tmp_path / "adapter") == scales
    again = from_pretrained(tmp_path / "adapter")
    assert isinstance(again, peft.PeftModel)
    assert close(logits(again), wanted)
    again.save_pretrained(tmp_path / "second")
    assert load_scales(tmp_path / "second") == scales


def test_saving_a_patched_model_warns_once_that_its_scales_are_lost(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = tiny_model("llama")
    with patch_rope(model, [1.2] * 3):
        with pytest.warns(
            UserWarning, match="scales of this model are not saved with it.*lpes_evo.from_pretrained"
        ):
            model.save_pretrained(tmp_path / "first")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.save_pretrained(tmp_path / "second")
            model.state_dict()
    adapted = peft.get_peft_model(tiny_model("llama"), peft.LoraConfig(target_modules=["q_proj"]))
    with patch_rope(adapted, [1.2] * 3), pytest.warns(UserWarning, match="not saved"):
        adapted.save_pretrained(tmp_path / "adapter")


def test_saving_an_untouched_model_and_taking_its_weights_warn_of_nothing(tmp_path: Path) -> None:
    model = tiny_model("llama")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with patch_rope(model, [1.2] * 3):
            model.state_dict()
        model.save_pretrained(tmp_path / "untouched")


def test_scales_that_are_missing_or_of_another_depth_are_refused(saved: Any, tmp_path: Path) -> None:
    with pytest.raises(ScalesError, match="it has no scales.json. Pass scales="):
        from_pretrained(tmp_path / "model")
    with pytest.raises(ScalesError, match="n_layers = 3, but got 4"):
        from_pretrained(tmp_path / "model", scales=save_scales(tmp_path / "deep.json", "model", n_layers=4))
    with pytest.raises(ScalesError, match=r"shape \(n_layers,\) = \(3,\)"):
        from_pretrained(tmp_path / "model", scales=[1.0, 2.0])
    with pytest.raises(ModelError, match="loading failed"):
        from_pretrained(tmp_path / "none", scales=saved[1])


# Repositories of the hub.


def test_scales_come_from_a_repository_of_the_hub(
    saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    asked = []

    def download(repository: str, file: str, *, revision: str | None, local_files_only: bool) -> str:
        asked.append((repository, file, revision, local_files_only))
        return str(tmp_path / "scales.json")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "hub_has_address", lambda: True)
    assert load_scales("someone/scales", revision="main") == saved[1]
    assert asked == [("someone/scales", "scales.json", "main", False)]


def test_a_hub_that_cannot_be_reached_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub, "hub_has_address", lambda: False)
    with pytest.raises(
        ScalesError, match="'nobody/scales'.*cannot be reached and the file is not in the cache"
    ):
        load_scales("nobody/scales")


def test_a_folder_here_goes_before_a_repository(
    saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(
        scales_module, "fetch_file", lambda *_args, **_options: pytest.fail("the hub was asked")
    )
    assert load_scales(f"{tmp_path.name}/scales.json") == saved[1]
    with pytest.raises(ScalesError, match="it cannot be read"):
        load_scales(tmp_path / "none.json")


def test_scales_of_the_cache_need_no_network(
    saved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    repository = tmp_path / "cache" / "models--someone--scales"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    (snapshot / "scales.json").write_bytes((tmp_path / "scales.json").read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "hub_has_address", lambda: False)
    assert load_scales("someone/scales") == saved[1]
