"""Logits of an exported folder, computed where lpes-evo cannot be imported; this file is run as a program too."""

import json
import sys
from typing import Any

N_DECODED = 4
"""Tokens that are decoded with a cache."""


def logits_of(model: Any, prompts: list[list[int]]) -> list[Any]:
    """Return the logits of some prompts, and of a few tokens that are decoded greedily after the first.

    Args:
        model: A causal language model of transformers.
        prompts: Token ids of each prompt.

    Returns:
        One float32 tensor ``(n_tokens, n_vocabulary)`` for each prompt, and one for the decoded tokens.
    """
    import torch

    device = next(model.parameters()).device
    found = []
    with torch.no_grad():
        for prompt in prompts:
            ids = torch.tensor([prompt], device=device)
            found.append(model(input_ids=ids, use_cache=False).logits[0].float().cpu())
        ids = torch.tensor([prompts[0]], device=device)
        output = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=N_DECODED,
            min_new_tokens=N_DECODED,
            do_sample=False,
            num_beams=1,
            output_logits=True,
            return_dict_in_generate=True,
        )
    found.append(torch.cat(list(output.logits)).float().cpu())
    return found


def main(request_file: str) -> None:
    """Load a folder with transformers alone, and write the logits of some prompts.

    Args:
        request_file: JSON with ``folder``, ``prompts``, ``text``, ``dtype``, ``device``, ``attention`` and ``output``.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with open(request_file, encoding="utf-8") as file:
        request = json.load(file)
    tokenizer = AutoTokenizer.from_pretrained(
        request["folder"], trust_remote_code=True, local_files_only=True
    )
    model = AutoModelForCausalLM.from_pretrained(
        request["folder"],
        trust_remote_code=True,
        local_files_only=True,
        dtype=getattr(torch, request["dtype"]),
        attn_implementation=request["attention"],
    )
    found = logits_of(model.eval().to(request["device"]), request["prompts"])
    tensors = {str(index): logits.contiguous() for index, logits in enumerate(found)}
    save_file(
        tensors, request["output"], metadata={"tokens": json.dumps(tokenizer(request["text"])["input_ids"])}
    )


if __name__ == "__main__":
    # Every import of the package that wrote the folder fails from here on.
    sys.modules["lpes_evo"] = None  # type: ignore[assignment]
    main(sys.argv[1])
