import numpy as np
import pytest
from matplotlib.figure import Figure

from lpes_evo.analysis import (
    AttentionMass,
    Drift,
    plot_attention,
    plot_decay,
    plot_drift_by_layer,
    plot_drift_of_arms,
    plot_drift_retrieval,
    plot_gold_attention,
    summarise_attention,
    summarise_drift,
)
from lpes_evo.problems import AnswerScores
from lpes_evo.reporting import new_panels, save_pictures

IDS = tuple(map(str, range(8)))


@pytest.fixture(scope="module")
def drift_summary():
    generator = np.random.default_rng(0)
    arms = {"curve": np.ones((1, 4)), "shuffles": np.ones((5, 4)), "my own": np.ones((1, 4))}
    scores = AnswerScores(-generator.random((7, 8)), np.ones((7, 8), dtype=bool))
    return summarise_drift(Drift(generator.random((3, 7, 8, 4)), IDS, IDS, 99), arms, scores)


@pytest.fixture(scope="module")
def attention_summary():
    untouched, scaled = np.random.default_rng(0).random((2, 8, 4, 5))
    untouched[:, 2] = scaled[:, 2] = np.nan
    return summarise_attention(
        AttentionMass(untouched, scaled, IDS, IDS, (0.0, 1.0) * 4, (1,) * 8, (20,) * 8, "", (0, 1, 3))
    )


def check(figure, n_panels):
    assert isinstance(figure, Figure)
    assert len(figure.axes) == n_panels
    assert all(axes.get_xlabel() or axes.get_ylabel() == "Layer" for axes in figure.axes)


def test_drift_by_layer_shows_the_median_of_every_arm(drift_summary):
    figure = plot_drift_by_layer(drift_summary)
    check(figure, 3)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["smooth curve", "shuffled curve (5)", "my own"]
    rows = drift_summary["arms"]["shuffles"]["layers"]["cka"]
    assert figure.axes[2].lines[1].get_ydata() == pytest.approx([row["value"] for row in rows])


def test_drift_of_arms_shows_every_vector(drift_summary):
    figure = plot_drift_of_arms(drift_summary)
    check(figure, 3)
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "."]
    assert [len(line.get_xdata()) for line in dots] == [1, 5, 1]


def test_drift_against_retrieval_says_where_there_is_no_correlation(drift_summary):
    figure = plot_drift_retrieval(drift_summary)
    check(figure, 2)
    assert "n = 7" in figure.axes[0].get_title()
    assert "no rank correlation" in figure.axes[1].get_title()


def test_attention_leaves_out_layers_without_attention(attention_summary):
    figure = plot_attention(attention_summary)
    check(figure, 5)
    assert figure.axes[4].get_ylabel() == "Share of attention: gold span"
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0, 1, 3]
    check(plot_gold_attention(attention_summary), 1)


def test_decay_draws_each_set_of_frequencies_once_before_scaling():
    theta = 10000.0 ** -(np.arange(0, 8, 2) / 8)
    figure = plot_decay([theta, None, theta], [0.5, 1.0, 2.0], 60)
    check(figure, 2)
    # One curve before, two after, and two empty lines for the legend.
    assert sum(len(line.get_xdata()) > 1 for line in figure.axes[0].lines) == 3


def test_panels_fill_rows_and_are_saved_in_both_formats(tmp_path):
    figure, panels = new_panels([("x", "y")] * 5)
    assert [axes.get_subplotspec().rowspan.start for axes in panels] == [0, 0, 0, 1, 1]
    files = save_pictures(figure, tmp_path / "a.b")
    assert [file.name for file in files] == ["a.b.png", "a.b.svg"]
    assert all(file.stat().st_size > 500 for file in files)
