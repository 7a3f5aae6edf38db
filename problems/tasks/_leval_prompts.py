"""The prompts of L-Eval's released baselines (``LEval_config.py`` and ``turbo16k-test.py``), spelling included."""

_TASK_HEADS = {
    "gsm100": (
        "Given several question answer pairs, you need to follow a similar format to answer the last question. Make "
        "sure the response is end with The answer is _ . "
    ),
    "topic_retrieval_longchat": (
        "Below is a record of our previous conversation on many different topics. You are the ASSISTANT, and I am the "
        "USER. At the beginning of each topic, the USER will say 'I would like to discuss the topic of <TOPIC>'. "
        "Memorize each <TOPIC>. At the end of the record, I will ask you to retrieve the first/second/third topic "
        "names. Now the record start. "
    ),
    "coursera": (
        "Now you are given a very long document. Please follow the instruction based on this document. For "
        "multi-choice questions, there could be a sinlge correct option or multiple correct options. Please only "
        "provide the letter corresponding to the answer (like A or AB) when answering. "
    ),
    "codeU": (
        "Now you are given a code base consisting of a large amount of functions and the corresponding comments. In "
        "the end, I will call some functions defined in the code base. Please carefully read these codes and comments "
        "and answer the question."
    ),
    "sci_fi": (
        'Now you are given a scientific fiction. I will ask you some questions and the answer should be "True" or '
        '"False". Notice that you should answer the question based on the evidence in the document instead of your '
        "background knowledge."
    ),
}
_CHOICE_HEAD = (
    "Now you are given a very long document. Please follow the instruction based on this document. For multi-choice "
    "questions, there is only a sinlge correct option. Please only provide the letter corresponding to the answer "
    "(like A or B) when answering. For other questions, please directly give the concise and accurate answer. "
)
_OPEN_HEAD = (
    "Now you are given a very long document. Please follow the instruction after this document. These instructions may "
    "include summarizing a document, answering questions based on the document, or writing a required paragraph. "
)
_PLAIN = ("gsm100", "codeU", "topic_retrieval_longchat")
_EXAM = ("coursera", "quality", "tpo", "sci_fi")
_NO_MORE = "Please directly give answer without any additional output or explanation"


def has_length_variant(variant: str) -> bool:
    """Return whether the prompt of a task can ask for a length; bare documents and SFiction cannot."""
    return variant not in (*_PLAIN, "sci_fi")


def document_prompt(
    variant: str, document: str, question: str, n_words: int | None
) -> tuple[str, tuple[int, int]]:
    """Build the prompt about a document.

    Args:
        variant: Name of the task.
        document: The document.
        question: The instruction.
        n_words: Words that the answer should have; ``None`` says nothing. The released baselines ask so in open-ended
            tasks; in closed-ended ones the sentence stands in the same place.

    Returns:
        The prompt, and the span of the document in it.
    """
    length = "" if n_words is None else f"The suggested output length is around {n_words} words. "
    if variant in _PLAIN:
        head, tail = _TASK_HEADS[variant], f"\n\n{question}"
    elif variant in _EXAM:
        head = _TASK_HEADS.get(variant, _CHOICE_HEAD) + "Document is as follows. "
        tail = f" Question: {question} \n{_NO_MORE}\n {length}Answer: "
    else:
        head = _OPEN_HEAD + "Document is as follows. "
        tail = f" Instruction: {question} {length}Output: "
    return head + document + tail, (len(head), len(head) + len(document))


def closed_book_prompt(question: str) -> str:
    """Build the prompt of SFiction that asks for the real world, without the document."""
    asked = question.replace(
        "based on the world described in the document.",
        "based on the real-world knowledge and facts up until your last training",
    )
    return f"{asked}\n{_NO_MORE} \nAnswer:"
