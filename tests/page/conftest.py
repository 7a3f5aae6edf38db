"""Small finished runs on the embedded model, by the algorithm that searched."""

import shutil

import pytest

from lpes_evo.config import load_config
from lpes_evo.runs import RunFolder, run_search
from samples import SMALL_RUN

SMALL = SMALL_RUN | {
    "search.population_size": 6,
    "search.offspring_size": 3,
    "search.generations": 2,
    "search.gradient_steps": 2,
    "report.n_shuffles": 2,
}


@pytest.fixture(scope="session")
def searched(tmp_path_factory):
    """Return the finished run of an algorithm, searched once; it is not to be changed."""
    made = {}

    def run_of(algorithm):
        if algorithm not in made:
            config = load_config(preset="demo", overrides=SMALL | {"search.algorithm": algorithm})
            folder = RunFolder(tmp_path_factory.mktemp("runs") / algorithm)
            folder.create(config)
            run_search(config, folder, devices="in-process")
            made[algorithm] = folder.path
        return made[algorithm]

    return run_of


@pytest.fixture
def run(searched, tmp_path):
    """A copy of a finished run of the genetic algorithm, to be changed at will."""
    return shutil.copytree(searched("ga"), tmp_path / "run")
