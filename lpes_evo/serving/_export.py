"""Export: a model folder that transformers alone loads with scales in force."""

from dataclasses import dataclass
from pathlib import Path

from lpes_evo.errors import ConfigError, ScalesError
from lpes_evo.models import LoadedModel, load_model, refuse_group, weights_hash
from lpes_evo.scales import Scales, load_scales
from lpes_evo.serving._arguments import CONFIG_KEY
from lpes_evo.serving._card import RunRecord, find_run, model_card
from lpes_evo.serving._check import check_folder, take_reference
from lpes_evo.serving._modelling import MODULE, modelling_code
from lpes_evo.serving._new_folder import check_new_folder, new_folder
from lpes_evo.serving._sources import find_source, merge_adapter, put_model, set_config, stored_dtype
from lpes_evo.storage import write_atomic


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        path: The folder.
        dtype: Number format of the weights, in which the folder was checked.
        difference: Largest difference of a logit between the folder and the patched model.
        effect: Largest difference that the scales make to a logit of the same prompts.
    """

    path: Path
    dtype: str
    difference: float
    effect: float


def export_model(
    name: str | Path,
    scales: str | Path,
    out: str | Path,
    *,
    revision: str | None = None,
    dtype: str | None = None,
    device: str = "auto",
    copy: bool = False,
    accept_other_model: bool = False,
) -> ExportResult:
    """Write a folder that ``AutoModelForCausalLM.from_pretrained(out, trust_remote_code=True)`` loads under scales.

    The folder needs no lpes-evo. Before it gets its name, it is loaded in a process that cannot import lpes-evo, and
    its logits are compared with those of the patched model.

    Args:
        name: Hub id, folder, LoRA adapter, ``.gguf`` file, or ``tiny``.
        scales: Run folder, ``scales.json``, or hub id of a repository with one.
        out: The new folder.
        revision: Revision of the model on the hub.
        dtype: Number format of weights that are written anew (of a GGUF file, float32 by default, or of a merged
            adapter); other weights stay as they are.
        device: Where the folder is checked, see `lpes_evo.models.load_model`.
        copy: Whether weights are copied where they could be linked.
        accept_other_model: Whether the scales may have been found on another model of the same depth.

    Returns:
        The folder, and what its check found.

    Raises:
        ConfigError: The folder exists or would be inside the model, or ``dtype`` is given for weights that stay.
        ScalesError: The scales cannot be read, or were found on a model of another depth or name.
        JournalError: The run folder of the scales is damaged, or another process is writing the same folder.
        ModelError: The device is a group, the model cannot be loaded, or the folder does not reproduce the patched
            model.
        UnsupportedModelError: The architecture cannot run under scales without lpes-evo; see docs/serving.md.
        StorageError: A file cannot be written, for example because the disk is full.
    """
    name, out = str(name), Path(out)
    refuse_group(device, "the check of an export")
    found = load_scales(scales)
    run = find_run(scales, found)
    source = find_source(name, revision)
    check_new_folder(out, source.local)
    if dtype is not None and source.kind == "folder":
        raise ConfigError(
            f"Expected --dtype only with a GGUF file or an adapter, whose weights are written anew, but {name} has "
            "files that are taken as they are. Leave it out."
        )

    loaded = load_model(name, revision=revision, dtype=dtype or stored_dtype(source), device=device)
    _refuse_other_depth(loaded, found)
    if not accept_other_model:
        _refuse_other_model(loaded, found, run)
    if source.kind == "adapter":
        merge_adapter(loaded.model)
    code = modelling_code(loaded.model)
    reference = take_reference(loaded, found)

    with new_folder(out) as folder:
        steps = put_model(source, loaded, folder, copy=copy)
        set_config(folder, code.config | {CONFIG_KEY: list(found.scales)})
        write_atomic(folder / f"{MODULE}.py", code.source)
        found.save(folder / "scales.json")
        # The patched model makes room for the one that is loaded from the folder.
        loaded = _without_weights(loaded)
        difference = check_folder(folder, reference)
        card = model_card(
            name,
            revision=revision,
            scales=found,
            run=run,
            steps=steps,
            difference=difference,
            effect=reference.effect,
            base_on_hub=source.base,
        )
        write_atomic(folder / "README.md", card)
    return ExportResult(out, reference.dtype, difference, reference.effect)


def _refuse_other_depth(loaded: LoadedModel, scales: Scales) -> None:
    """Refuse scales of another number of layers.

    Raises:
        ScalesError: They are.
    """
    if scales.n_layers != loaded.n_layers:
        raise ScalesError(
            f"Expected scales for a model of n_layers = {loaded.n_layers}, but got {scales.n_layers} (found on "
            f"{scales.model}). Search scales for this model."
        )


def _refuse_other_model(loaded: LoadedModel, scales: Scales, run: RunRecord | None) -> None:
    """Refuse scales that were found on another model.

    The weights decide where a run has written down their hash, in the number format at hand; else the names do.

    Raises:
        ScalesError: They were.
    """
    provenance = {} if run is None else run.provenance
    if provenance.get("weights") and provenance.get("dtype") == loaded.dtype:
        is_same = provenance["weights"] == weights_hash(loaded.model)
    else:
        is_same = scales.model == loaded.name
    if not is_same:
        what = f"on {scales.model}" if scales.model != loaded.name else "on other weights of this name"
        raise ScalesError(
            f"Expected scales that were found on {loaded.name}, but these were found {what}. Search scales for this "
            "model, or say --accept-other-model."
        )


def _without_weights(loaded: LoadedModel) -> LoadedModel:
    """Free the memory of a model that is done with, and return what is left."""
    loaded.model.to("meta")
    return loaded
