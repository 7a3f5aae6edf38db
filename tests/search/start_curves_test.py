"""A search starts from curves that were found before, on a model of any depth."""

import numpy as np
import pytest

from lpes_evo.config import StartCurve, load_config
from lpes_evo.errors import ConfigError, ScalesError
from lpes_evo.operators import CurveSpace
from lpes_evo.runs import RunFolder, run_search
from lpes_evo.scales import Scales
from samples import SMALL_RUN

POINTS = ((0.0, 0.9), (1.0, 1.3), (5.0, 1.2), (5.0, 1.0))


def write(path, points=POINTS, n_layers=6):
    scales = CurveSpace(n_layers, len(points)).draw([points])[0]
    Scales("other", tuple(scales.tolist()), points, "needle", (0.0,)).save(path)
    return path


def test_a_feasible_curve_is_its_own_start(tmp_path):
    start = StartCurve.from_scales(write(tmp_path / "scales.json"))
    genome, moved = start.genome(CurveSpace(6))
    assert tuple(genome) == POINTS
    assert moved == pytest.approx(0, abs=1e-12)


def test_a_curve_of_another_depth_is_stretched(tmp_path):
    points = ((0.0, 0.9), (2.0, 1.3), (9.0, 1.2), (11.0, 1.0))
    start = StartCurve.from_scales(write(tmp_path / "scales.json", points, 12))
    space = CurveSpace(6)
    genome, moved = start.genome(space)
    stretched = start.genome(CurveSpace(6, y_step=None))[0]
    assert moved < 0.05
    np.testing.assert_allclose(
        space.decode([genome]), CurveSpace(6, y_step=None).decode([stretched]), atol=0.05
    )


def test_a_curve_beyond_the_bounds_is_refused_with_its_layer_and_the_setting(tmp_path):
    points = ((0.0, 0.9), (0.0, 1.3), (5.0, 2.4), (5.0, 2.8))
    start = StartCurve.from_scales(write(tmp_path / "scales.json", points))
    with pytest.raises(
        ConfigError, match=r"from 0.5 to 2, but that of .*scales.json has 2\.\d+ at layer \d. Widen"
    ):
        load_config(overrides={"initial": [start.model_dump()]})
    assert load_config(overrides={"initial": [start.model_dump()], "curve.y_max": 3.0}).initial == (start,)


def test_a_file_that_holds_no_scales_is_refused(tmp_path):
    (tmp_path / "scales.json").write_text("{}")
    with pytest.raises(ScalesError):
        StartCurve.from_scales(tmp_path / "scales.json")


def test_a_search_evaluates_its_start_curve_and_keeps_it_in_its_configuration(tmp_path):
    start = StartCurve.from_scales(write(tmp_path / "scales.json"))
    overrides = SMALL_RUN | {"search.generations": 1, "initial": [start.model_dump()]}
    config = load_config(preset="demo", overrides=overrides)
    folder = RunFolder(tmp_path / "run")
    folder.create(config)
    assert folder.load_config() == config
    run_search(config, folder, devices="in-process")
    points = "0.0,0.9;1.0,1.3;5.0,1.2;5.0,1.0"
    assert points in folder.journal.read_text()
    # The search is the same again, also where the file of the curve is gone.
    before = folder.scales.read_bytes()
    (tmp_path / "scales.json").unlink()
    folder.scales.unlink()
    run_search(folder.load_config(), folder, devices="in-process")
    assert folder.scales.read_bytes() == before


def test_a_configuration_has_the_hash_that_it_had_before_later_settings_were_added():
    from lpes_evo.config import settings_hash

    config = load_config(preset="demo")
    assert {"initial", "guards"} <= config.model_dump().keys()
    assert settings_hash(config) == "a09dfb440f6185656807712cdb7b5de572cc1794f7e4bb43c4fb9af03eba74fd"
