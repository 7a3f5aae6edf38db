import json
import re

import numpy as np
import pytest

from lpes_evo.errors import LpesError, ScalesError
from lpes_evo.operators import CurveSpace
from lpes_evo.scales import Scales, check_scales, load_scales

SCALES = Scales("tiny", (0.9, 1.0, 1.1), ((0.0, 0.9), (2.0, 1.1)), "recall", (-0.25,))


@pytest.fixture
def path(tmp_path):
    SCALES.save(tmp_path / "scales.json")
    return tmp_path / "scales.json"


def test_scales_round_trip_from_the_file_and_from_its_folder(path):
    assert load_scales(path) == SCALES
    assert load_scales(path.parent, model="tiny", n_layers=3) == SCALES


def test_the_file_says_what_it_is(path):
    values = json.loads(path.read_text())
    assert values["format"] == "lpes-evo/scales"
    assert values["version"] == 1
    assert values["n_layers"] == 3


def test_a_file_cut_at_any_byte_is_refused(path):
    data = path.read_bytes().rstrip()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(ScalesError, match="to be JSON, but it is not|to have format"):
            load_scales(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scales", [1.0, 1.0], r"shape \(n_layers,\) = \(3,\)"),
        ("scales", [1.0, 0.0, 1.0], "finite and positive, but got 0.0 at layer 1"),
        ("scales", [1.0, -2.0, 1.0], "finite and positive, but got -2.0 at layer 1"),
        ("scales", [1.0, float("nan"), 1.0], r"finite .* but got nan at scales\.1"),
        ("scales", "abc", "scales is 'abc': input should be a valid array"),
        ("scales", [[1.0, 1.0, 1.0]], r"scales\.0 is \[1\.0, 1\.0, 1\.0\]: input should be a valid number"),
        ("n_layers", 4, r"shape \(n_layers,\) = \(4,\)"),
        ("n_layers", "many", "n_layers is 'many': input should be a valid integer"),
        ("format", "other", "to have format 'lpes-evo/scales', version 1"),
        ("version", 2, "to have format 'lpes-evo/scales', version 1"),
        ("model", 7, "model is 7: input should be a valid string"),
        ("control_points", [[0.0]], r"the field 'control_points\.0\.1', but it is missing"),
        (
            "control_points",
            [[0.0, float("inf")], [2.0, 1.1]],
            r"finite .* but got inf at control_points\.0\.1",
        ),
        ("fitness", None, "fitness is None: input should be a valid array"),
        ("scales", "111", "scales is '111': input should be a valid array"),
        ("scales", [True, True, True], r"scales\.0 is True: input should be a valid number"),
        (
            "scales",
            [0.9, 1.0, 1.2],
            "do not lie on the curve of its control points: layer 2 has 1.2 instead of 1.1",
        ),
        ("n_layers", float("inf"), "finite .* but got inf at n_layers"),
        ("n_layers", 3.0, r"n_layers is 3\.0: input should be a valid integer"),
        ("version", True, "to have format 'lpes-evo/scales', version 1"),
        ("control_points", [], "scales.json: Expected n_points to be a whole number from 2"),
        ("control_points", [[0.0, 10**400], [2.0, 1.1]], "within the range of a float, but got 10+"),
    ],
)
def test_an_edited_field_is_refused(path, field, value, message):
    values = json.loads(path.read_text()) | {field: value}
    path.write_text(json.dumps(values))
    with pytest.raises(ScalesError, match=message):
        load_scales(path)


def test_a_missing_field_is_named(path):
    values = json.loads(path.read_text())
    del values["task"]
    path.write_text(json.dumps(values))
    with pytest.raises(ScalesError, match="to have the field 'task', but it is missing"):
        load_scales(path)


def test_another_model_or_depth_is_refused(path):
    with pytest.raises(ScalesError, match="Expected scales found on big, but those of .* were found on tiny"):
        load_scales(path, model="big")
    with pytest.raises(ScalesError, match="a model of n_layers = 32, but .* has 3"):
        load_scales(path, n_layers=32)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScalesError, match="cannot be read: No such file"):
        load_scales(tmp_path / "nothing.json")
    with pytest.raises(ScalesError, match="cannot be read: No such file"):
        load_scales(tmp_path)
    with pytest.raises(ScalesError, match="cannot be read: File name too long"):
        load_scales(tmp_path / ("a" * 300))


def test_a_file_nested_too_deeply_is_refused(path):
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ScalesError, match="to be JSON, but it is not: "):
        load_scales(path)


def test_scales_are_checked_as_arrays():
    assert check_scales([1, 2, 3], 3).dtype == np.float64
    assert check_scales(np.ones((4, 3)), 3).shape == (4, 3)
    for wrong in (np.ones((2, 2, 3)), np.ones(0), 1.0, np.ones((0, 3))):
        with pytest.raises(ScalesError, match=r"Expected scales of shape \(n_layers,\) = \(3,\)"):
            check_scales(wrong, 3)
    for wrong in (["a", "b", "c"], ["1.5", "1", "1"], [True] * 3, [1.0, 1j, 1.0], [1.0, None, {}]):
        with pytest.raises(LpesError, match="Expected scales to be numbers, but got"):
            check_scales(wrong, 3)
    for wrong in (9e-7, 2e6):
        message = f"between 1e-06 and 1e+06, but got {wrong:g} at layer 1"
        with pytest.raises(ScalesError, match=re.escape(message)):
            check_scales([1.0, wrong, 1.0], 3)
    assert check_scales([1e-6, 1.0, 1e6], 3).tolist() == [1e-6, 1.0, 1e6]


def test_a_curve_carried_to_another_depth_keeps_its_shape():
    points = ((0.0, 0.8), (3.0, 1.6), (9.0, 0.7), (23.0, 1.1))
    found = Scales("small", tuple(CurveSpace(24, 4).draw([points])[0].tolist()), points, "kv", (0.5,))
    deeper = found.at_depth(47)
    assert deeper.n_layers == 47
    assert deeper.control_points == ((0.0, 0.8), (6.0, 1.6), (18.0, 0.7), (46.0, 1.1))
    # Layers 0, 2, 4, ... of 47 stand where layers 0, 1, 2, ... of 24 stood.
    assert deeper.scales[::2] == pytest.approx(found.scales, abs=1e-9)
    assert (deeper.model, deeper.task, deeper.fitness) == ("small", "kv", (0.5,))
    assert found.at_depth(24) is found
    assert deeper.at_depth(24).scales == pytest.approx(found.scales, abs=1e-9)


def test_carried_scales_are_a_sound_file_at_any_depth(tmp_path):
    for n_layers in range(2, 130):
        scales = SCALES.at_depth(n_layers)
        scales.save(tmp_path / "scales.json")
        assert load_scales(tmp_path) == scales


def test_a_single_layer_has_no_curve_to_carry():
    with pytest.raises(
        ScalesError, match="at least 2 layers to carry a curve from one to the other, but got 3 and 1"
    ):
        SCALES.at_depth(1)
