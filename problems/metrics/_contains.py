"""Containment of a value, the metric of key-value retrieval in Lost in the Middle.

Source: ``evaluate_kv_responses.py`` of https://arxiv.org/abs/2307.03172.
"""


def contains_value(output: str, value: str) -> float:
    """Score an output that should contain a value; case does not count, and all lines do.

    Args:
        output: The output of the model.
        value: The value.

    Returns:
        1 if the output contains the value, else 0.
    """
    return float(value.lower() in output.lower())
