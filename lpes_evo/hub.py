"""The hub of models: whether it can be reached, and small files of its repositories."""

import re
import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from lpes_evo.errors import LpesError

_REPOSITORY = re.compile(r"(\w[\w.-]*)/\w[\w.-]*")
_RUNS = "runs"
"""The folder in which searches and evaluations put theirs."""
_SUFFIXES = (".json", ".gguf", ".yaml")


def is_repository_name(name: str) -> bool:
    """Return whether a text is the name of a repository, ``user/repository``, and no path on this disk.

    A path is what ends as a file does, what begins with a folder that is here, and what is in ``runs``; a typing error
    in one of these is told at once, without a question to the hub.
    """
    form = _REPOSITORY.fullmatch(name)
    if form is None or name.endswith(_SUFFIXES):
        return False
    return form[1] != _RUNS and not Path(form[1]).is_dir()


def hub_has_address() -> bool:
    """Return whether the hub may be reached; without a network its client would try for half a minute."""
    from huggingface_hub import constants

    if urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def fetch_file(repository: str, file: str, *, revision: str | None, error: type[LpesError]) -> Path:
    """Return a file of a repository, from the cache where it is there.

    Args:
        repository: Name of the repository, ``user/repository``.
        file: Name of the file in it.
        revision: Revision of the repository; the newest where ``None``.
        error: What is raised.

    Returns:
        The path of the file in the cache.

    Raises:
        LpesError: There is no such repository, revision or file, or the hub cannot be reached and the file is not in
            the cache; of the class ``error``.
    """
    from huggingface_hub import hf_hub_download

    offline = not hub_has_address()
    try:
        return Path(hf_hub_download(repository, file, revision=revision, local_files_only=offline))
    except Exception as failure:
        # The client raises many unrelated types for a wrong name, a private repository or a lost connection.
        reason = " ".join(str(failure).split()) or type(failure).__name__
        if offline:
            reason = "the hub cannot be reached and the file is not in the cache. Connect, or name a file"
        raise error(
            f"Expected {file} in the repository {repository!r} of the hub, since there is no file or folder of this "
            f"name here, but {reason:.300}."
        ) from failure
