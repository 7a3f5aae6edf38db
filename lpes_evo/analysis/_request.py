"""AnalysisRequest and Subject: the options of an analysis, and the model, scales and inputs that they name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from lpes_evo.analysis._inputs import AnalysisInput, inputs_of_examples, inputs_of_text
from lpes_evo.config import RunConfig, Settings, load_config
from lpes_evo.errors import ConfigError
from lpes_evo.models import LoadedModel, load_model
from lpes_evo.problems import Example, data_hash
from lpes_evo.runs import task_examples
from lpes_evo.scales import Scales, load_scales

_N_PIECES = 32
_PIECE_TOKENS = 512


class AnalysisRequest(Settings):
    """Options of an analysis.

    Attributes:
        model: Hub id, folder, ``.gguf`` file, or ``tiny``.
        scales: A ``scales.json``, or the folder of a finished run, whose configuration is then the default.
        task: Name of the task whose held-out prompts are analysed; by default that of the run or of the scales.
        config: YAML file with a configuration, for options of the task, gold positions and the seed.
        text: Text file that is analysed instead of a task.
        length: Number of tokens of a piece of the text; ``None`` for 512, or the window of the model if it is shorter.
        n_examples: Number of examples at each gold position, or of pieces of the text; ``None`` for 4, or 32.
        seed: Seed of every draw; by default that of the configuration.
        dtype: Data type of the model, see `lpes_evo.load_model`.
        device: Device of the model.
        attention: Attention backend of the model.
        batch_tokens: Number of tokens of one forward pass.
    """

    model: str
    scales: Path
    task: str | None = None
    config: Path | None = None
    text: Path | None = None
    length: int | None = Field(default=None, ge=1)
    n_examples: int | None = Field(default=None, ge=1)
    seed: int | None = None
    dtype: str | None = None
    device: str = "auto"
    attention: str | None = None
    batch_tokens: int | None = Field(default=None, ge=1)


@dataclass(frozen=True)
class Subject:
    """The model, the scales and the inputs of an analysis.

    Attributes:
        request: The options.
        config: The configuration that the options resolve to.
        scales: The scales.
        loaded: The model.
        inputs: The inputs.
        examples: The held-out examples of which the inputs are made; empty for a text.
    """

    request: AnalysisRequest
    config: RunConfig
    scales: Scales
    loaded: LoadedModel
    inputs: list[AnalysisInput]
    examples: list[Example]

    @property
    def batch_tokens(self) -> int | None:
        """Number of tokens of one forward pass, where the user gave one."""
        return self.request.batch_tokens or self.config.task.batch_tokens

    def facts(self) -> dict[str, Any]:
        """Return what identifies the analysis, as values that `json` can write."""
        request = self.request

        return {
            "model": self.loaded.name,
            "dtype": self.loaded.dtype,
            "device": self.loaded.device,
            "attention": self.loaded.attention,
            **({"notes": list(self.loaded.notes)} if self.loaded.notes else {}),
            "scales": list(self.scales.scales),
            "found_on": self.scales.model,
            "found_with_task": self.scales.task,
            "task": None if request.text else self.config.task.model_dump(mode="json"),
            "text": None if request.text is None else request.text.name,
            "data": data_hash(self.examples) if self.examples else None,
            "seed": self.config.seed,
        }


def prepare(request: AnalysisRequest) -> Subject:
    """Read scales and configuration, load the model and make the inputs.

    Everything that needs no model comes first, so that bad input is refused early.

    Args:
        request: The options.

    Returns:
        The subject of the analysis.

    Raises:
        ScalesError: The scales cannot be read, or belong to a model of another depth.
        ConfigError: The configuration is not valid, or two options contradict each other.
        TaskError: The task, its options or the text are not valid.
        ModelError: The model cannot be loaded or used.
    """
    scales = load_scales(request.scales)
    config = _config(request, scales)
    # A guard can be a text without a question.
    examples = (
        []
        if request.text is not None
        else [example for example in task_examples(config, "report") if example.prompt]
    )
    loaded = load_model(
        request.model,
        revision=config.model.revision,
        dtype=config.model.dtype,
        device=request.device,
        attention=config.model.attention,
        trust_remote_code=config.model.trust_remote_code,
    )
    load_scales(request.scales, n_layers=loaded.n_layers)

    if request.text is None:
        inputs = inputs_of_examples(loaded, examples, chat_template=config.task.chat_template)
    else:
        inputs = inputs_of_text(
            loaded,
            request.text,
            length=min(_PIECE_TOKENS, loaded.max_length) if request.length is None else request.length,
            n_inputs=_N_PIECES if request.n_examples is None else request.n_examples,
        )

    return Subject(request, config, scales, loaded, inputs, examples)


def _config(request: AnalysisRequest, scales: Scales) -> RunConfig:
    """Return the configuration of the file or the run that is named, with the options of the request over it."""
    if request.text is not None and request.task is not None:
        raise ConfigError("Expected a task or a text, but got both. Leave out --task or --text.")
    if request.length is not None and request.text is None:
        raise ConfigError("Expected --length only with --text, which it cuts. Leave it out.")

    file = request.config
    if file is None and request.scales.is_dir() and (request.scales / "config.yaml").is_file():
        file = request.scales / "config.yaml"

    given = {
        "model.name": request.model,
        "model.dtype": request.dtype,
        "model.attention": request.attention,
        "task.name": request.task or (scales.task if file is None and request.text is None else None),
        "seed": request.seed,
        "report.n_per_position": 4 if request.n_examples is None else request.n_examples,
    }
    config = load_config(
        file=file, overrides={key: value for key, value in given.items() if value is not None}
    )

    # A revision, and trust in its code, are those of one model.
    if file is not None and load_config(file=file).model.name != request.model:
        model = config.model.model_copy(update={"revision": None, "trust_remote_code": False})
        config = config.model_copy(update={"model": model})
    return config
