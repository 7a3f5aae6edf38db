"""`read_sequences`: texts for the training of routers, from files of JSON lines."""

import json
from pathlib import Path
from typing import Any

from lpes_evo.errors import TaskError

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


def read_sequences(path: Path, tokenizer: Any) -> list[list[int]]:
    """Return the token ids of the texts of a file.

    A line holds ``text``; or ``prompt`` and ``answer``; or ``conversations``, a list of turns with ``from`` and
    ``value`` or ``role`` and ``content``. Prompts and conversations are written by the tokenizer's chat template.
    Without a template, a turn of the user stands between ``[INST]`` and ``[/INST]``, as in the released recipe.

    Args:
        path: The file.
        tokenizer: A tokenizer of transformers.

    Returns:
        One list of ids for each line.

    Raises:
        TaskError: The file cannot be read, or a line has none of these forms.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(
            f"Expected JSON lines in {path}, but it cannot be read: {error}. Check the path."
        ) from error

    sequences = [
        _encode(_turns(line, f"{path}, line {number}"), tokenizer)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]

    if not sequences:
        raise TaskError(f"Expected JSON lines in {path}, but it is empty. Give a file with texts.")
    return sequences


def _turns(line: str, place: str) -> str | list[dict[str, str]]:
    """Return the text of a line, or its turns."""
    wanted = "Expected a JSON object with text, with prompt and answer, or with conversations"
    try:
        record = json.loads(line)
        json.dumps(record, ensure_ascii=False).encode()  # escapes may name halves of characters
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{wanted} in {place}, but it is no such text: {error}.") from error

    if not isinstance(record, dict):
        raise TaskError(f"{wanted} in {place}, but got {type(record).__name__}.")
    if isinstance(record.get("text"), str):
        return str(record["text"])

    turns = record.get("conversations")
    if "prompt" in record and "answer" in record:
        turns = [
            {"role": "user", "content": record["prompt"]},
            {"role": "assistant", "content": record["answer"]},
        ]

    if not isinstance(turns, list) or not turns:
        raise TaskError(f"{wanted} in {place}, but got the keys {', '.join(record) or 'none'}.")
    return [_turn(turn, place) for turn in turns]


def _turn(turn: Any, place: str) -> dict[str, str]:
    role = (turn.get("role") or turn.get("from")) if isinstance(turn, dict) else None
    content = turn.get("content", turn.get("value")) if isinstance(turn, dict) else None
    if role not in _ROLES or not isinstance(content, str):
        raise TaskError(
            f"Expected turns with a role, one of {', '.join(_ROLES)}, and a text in {place}, but got {turn!r:.60}."
        )
    return {"role": _ROLES[role], "content": content}


def _encode(text: str | list[dict[str, str]], tokenizer: Any) -> list[int]:
    if isinstance(text, str):
        return [int(token) for token in tokenizer(text)["input_ids"]]

    if getattr(tokenizer, "chat_template", None):
        # The template writes the special tokens itself.
        templated = tokenizer.apply_chat_template(text, tokenize=False)
        return [int(token) for token in tokenizer(templated, add_special_tokens=False)["input_ids"]]

    joined = " ".join(
        f"[INST] {turn['content']} [/INST]" if turn["role"] == "user" else turn["content"] for turn in text
    )
    end = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    return [int(token) for token in tokenizer(joined)["input_ids"]] + end
