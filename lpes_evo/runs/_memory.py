"""MemoryNeed: the memory of GPUs that a run needs, from the config of its model alone, and the groups that have it.

Let ``b`` be the bytes of a number in the model's dtype, ``d`` the width of the hidden states, ``f`` the width of the
feed-forward part (times the experts of a token), ``h`` the width of a head, ``L`` the number of layers. Let ``T`` be
the tokens of the largest forward pass, ``w`` its longest row, ``A`` the answer tokens whose logits it computes, and
``V`` the vocabulary. The parts, in bytes, are

- weights: those of the device that holds most, when they are spread as `lpes_evo.models.spread` spreads them,
- activations: ``T (6 d + 3 f) b`` for the layer at work; ``T w (b + 2)`` for the masks of rows that share a prefix;
  ``T w n_heads (b + 4)`` more with the attention backend ``eager``, which keeps its weights,
- rotary tables: ``2 L T h (b + 4)``, cosines and sines of every layer, which are computed in float32,
- logits: ``A V (b + 8)``, once in the dtype of the model and twice in float32,
- gradients: ``L T (10 d + 4 f) b`` for activations that are kept, or ``L T d b`` with checkpointing.

The counts 6, 3, 10 and 4 are those of the Llama family. Of each GPU, 1 GiB and a tenth of the rest are left to the
driver, to libraries and to gaps between blocks.
"""

from dataclasses import dataclass
from typing import Any

from lpes_evo.config import RunConfig
from lpes_evo.models import outline, spread, window
from lpes_evo.problems import Split, batches, default_batch_tokens, encode_examples, pack_rows
from lpes_evo.runs._tasks import examples_by_task, tasks_of

GIB = 2**30
_RESERVED, _USABLE = 1 * GIB, 0.9


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that the model and the largest forward pass of a run need.

    Attributes:
        dtype: Number format of the weights.
        n_weights: Number of weights.
        shares: Bytes of weights of the fullest device, for a group of 1, 2, ... devices, ``(n_layers,)``.
        pass_tokens: Tokens of the largest forward pass, padding and candidates included.
        longest: Tokens of the longest row.
        activations: Bytes for the layer at work, the masks, and the rotary tables of all layers.
        logits: Bytes for the logits at the answers.
        gradients: Bytes of what all layers keep for a backward pass; 0 without gradients.
    """

    dtype: str
    n_weights: int
    shares: tuple[int, ...]
    pass_tokens: int
    longest: int
    activations: int
    logits: int
    gradients: int = 0

    def on(self, n_gpus: int) -> int:
        """Return the bytes that the fullest GPU of a group needs; what all layers keep is spread like the layers."""
        return self.shares[n_gpus - 1] + self.activations + self.logits + self.gradients // n_gpus

    def n_gpus(self, memory: int) -> int | None:
        """Return the smallest number of GPUs for one worker.

        Args:
            memory: Bytes of each GPU.

        Returns:
            The number, or ``None`` where even one GPU for each layer does not suffice.
        """
        room = _USABLE * (memory - _RESERVED)
        return next((n for n in range(1, len(self.shares) + 1) if self.on(n) <= room), None)

    def lines(self, memory: int | None, n_found: int) -> list[str]:
        """Return the need as lines for people, with the groups that have it.

        Args:
            memory: Bytes of each GPU; ``None`` where they are not known.
            n_found: GPUs that are there.
        """
        gradients = f", {_gib(self.gradients)} for gradients" if self.gradients else ""
        return [
            f"memory on GPUs      weights {_gib(self.shares[0])} ({self.n_weights / 1e9:.2f} billion in {self.dtype}), "
            f"activations {_gib(self.activations)} (passes of {self.pass_tokens} tokens, the longest row "
            f"{self.longest}), logits {_gib(self.logits)}{gradients}",
            f"GPUs                {self._suggestion(memory, n_found)}",
        ]

    def _suggestion(self, memory: int | None, n_found: int) -> str:
        if memory is None:
            return "none is here; --gpu-memory GIB tells how many of that size a worker needs"

        n = self.n_gpus(memory)
        if n is None:
            return (
                f"{_gib(memory)} each do not suffice, even with one layer on each of {len(self.shares)}; lower "
                "task.batch_tokens, or take shorter examples"
            )

        needed = f"{n} of {_gib(memory)} for each worker"
        group = "+".join(f"cuda:{place}" for place in range(n))
        if not n_found:
            return f"{needed}: --devices {group if n > 1 else 'auto'}"
        if n > n_found:
            return f"{needed}, but {n_found} are here"

        n_left = n_found % n
        if n == 1:
            return f"{needed}: --devices auto makes {n_found} workers"
        if not n_left:
            return f"{needed}: --devices auto:{n} makes {n_found // n} workers"
        groups = ",".join(
            "+".join(f"cuda:{first + place}" for place in range(n)) for first in range(0, n_found - n_left, n)
        )
        return f"{needed}: --devices {groups} leaves {n_left} out"


def memory_need(config: RunConfig, kind: str = "cuda") -> MemoryNeed:
    """Return the memory that a run needs, before any weight is read.

    Args:
        config: The configuration of the run. Without a dtype the weights count in bfloat16, as on current GPUs.
        kind: Kind of device, which decides the tokens of a forward pass where the configuration does not.

    Returns:
        The need.

    Raises:
        LpesError: The config or the tokenizer of the model cannot be read, or the data are not valid.
    """
    asked = config.model
    half = "float32" if asked.name == "tiny" else "bfloat16"
    dtype = half if asked.dtype == "auto" else asked.dtype
    model, tokenizer = outline(asked.name, asked.revision, dtype, trust_remote_code=asked.trust_remote_code)

    sizes = _widths(model)
    passes = _passes(config, model, tokenizer, kind)
    number, layers, tokens, longest = sizes["number"], sizes["layers"], passes["tokens"], passes["longest"]

    layer = tokens * (6 * sizes["hidden"] + 3 * sizes["inner"]) * number
    masks = tokens * longest * (number + 2) if config.task.share_prefixes else 0
    if asked.attention == "eager":
        masks += tokens * longest * sizes["heads"] * (number + 4)
    tables = 2 * layers * tokens * sizes["head"] * (number + 4)

    kept = sizes["hidden"] if config.task.checkpointing else 10 * sizes["hidden"] + 4 * sizes["inner"]
    return MemoryNeed(
        dtype=dtype,
        n_weights=sum(weight.numel() for weight in model.parameters()),
        shares=tuple(_largest_share(model, n) for n in range(1, layers + 1)),
        pass_tokens=tokens,
        longest=longest,
        activations=layer + masks + tables,
        logits=passes["answers"] * sizes["vocabulary"] * (number + 8),
        gradients=layers * tokens * kept * number if config.search.max_gradients else 0,
    )


def gpus_found() -> tuple[int | None, int]:
    """Return the bytes of the smallest GPU that torch sees, ``None`` without one, and the number of GPUs."""
    import torch

    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    memory = [torch.cuda.get_device_properties(place).total_memory for place in range(n_gpus)]
    return min(memory, default=None), n_gpus


def _widths(model: Any) -> dict[str, int]:
    """Return the sizes of a model that the formulas name; a config that lacks one has that of the Llama family."""
    from lpes_evo.rope import count_layers

    config = model.config.get_text_config()
    hidden, heads = config.hidden_size, config.num_attention_heads
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    if isinstance(inner, (list, tuple)):
        inner = max(inner)
    expert = getattr(config, "moe_intermediate_size", None)
    n_experts = getattr(config, "num_experts_per_tok", None) or 1
    inner = max(inner, (expert if isinstance(expert, int) else inner) * n_experts)
    return {
        "number": model.dtype.itemsize,
        "layers": count_layers(model),
        "hidden": hidden,
        "inner": inner,
        "heads": heads,
        "head": getattr(config, "head_dim", None) or hidden // heads,
        "vocabulary": config.vocab_size,
    }


def _passes(config: RunConfig, model: Any, tokenizer: Any, kind: str) -> dict[str, int]:
    """Return the tokens of the largest forward pass, of the longest row, and the answer tokens of a pass."""
    task = config.task
    batch_tokens = task.batch_tokens or default_batch_tokens(kind)
    n_candidates = task.candidates_per_pass or config.search.offspring_size
    largest = {"tokens": 0, "longest": 0, "answers": 0}

    tasks = tasks_of(config)
    splits: tuple[Split, ...] = ("search", "report")
    drawn = [
        (name, examples) for split in splits for name, examples in examples_by_task(config, split).items()
    ]
    for name, examples in drawn:
        encoding = encode_examples(
            examples,
            tokenizer,
            max_length=window(model.config, tokenizer),
            chat_template=task.chat_template,
            over_length=task.over_length,
            scored="text" if tasks[name].kind == "likelihood" else "every answer",
        )
        all_rows = [row for rows in encoding.rows_of for row in rows]
        packs = pack_rows(all_rows, share_prefixes=task.share_prefixes)
        for batch in batches(packs, batch_tokens, n_candidates):
            rows = [row for pack in batch.packs for row in pack.rows]
            longest = max(pack.n_tokens for pack in batch.packs)
            found = {
                "tokens": len(batch.candidates) * len(batch.packs) * longest,
                "longest": longest,
                "answers": len(batch.candidates) * len(rows) * max(len(row.answer_ids) for row in rows),
            }
            largest = {name: max(size, found[name]) for name, size in largest.items()}
    return largest


def _largest_share(model: Any, n_devices: int) -> int:
    """Return the bytes of weights on the fullest of some devices."""
    shares: dict[str, dict[int, int]] = {}
    for name, place in spread(model, [str(number) for number in range(n_devices)]).items():
        part = model.get_submodule(name)
        # Parts that share a weight stand on one device, and the weight counts once.
        of_part = {id(weight): weight.nbytes for weight in (*part.parameters(), *part.buffers())}
        shares.setdefault(place, {}).update(of_part)
    return max(sum(share.values()) for share in shares.values())


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
