"""Key-value retrieval of Lost in the Middle (https://arxiv.org/abs/2307.03172), ``evaluate_kv_responses.py``."""


def contains_value(output: str, value: str) -> float:
    """Return whether an output contains a value; both are lower-cased and all lines count.

    Args:
        output: What the model said.
        value: The value.

    Returns:
        1 if it does, else 0.
    """
    return float(value.lower() in output.lower())
