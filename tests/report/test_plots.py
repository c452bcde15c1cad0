"""Figures: three files each, the same bytes each time, the CSV of what is drawn."""

import csv
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from espnet_latentasr.analysis.allocation import allocation
from espnet_latentasr.analysis.calibration import calibration
from espnet_latentasr.analysis.latency import latency
from espnet_latentasr.analysis.quartiles import difficulties, quartiles
from espnet_latentasr.analysis.refinement import refinement
from espnet_latentasr.analysis.sweep import knee, pareto_front, sweep
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.report import figures, plots

RNG = np.random.default_rng(0)
VALUES, ERRORS = RNG.normal(0, 0.3, (60, 4)), RNG.integers(0, 4, (60, 4))
LENGTHS = np.full(60, 6)


def make_all():
    points = sweep(VALUES, ERRORS, LENGTHS, np.linspace(-1, 1, 21))
    notions = difficulties(ERRORS[:, 0], ERRORS[:, 1], LENGTHS, VALUES[:, 0])
    bins = {n: quartiles(d, ERRORS[:, 0], ERRORS[:, 1], LENGTHS, d > 0) for n, d in notions.items()}
    updates = RNG.normal(size=(9, 3, 5))
    norms = np.linalg.norm(updates, axis=-1)
    cosines = (updates[:, 1:] * updates[:, :-1]).sum(-1) / (norms[:, 1:] * norms[:, :-1])
    jumps = np.linalg.norm(updates[:, 1:] - updates[:, :-1], axis=-1)
    path = refinement(norms, cosines, jumps)
    seconds = RNG.random((60, 4))
    return {
        "forest": figures.forest("forest", [("a", -1.0, -2.0, -0.5), ("b", 1.0, -1.0, 2.0)], ""),
        "pareto": figures.pareto(
            "pareto", points, [(0.0, 0.0), (3.0, -0.1)], [(0.0, 0.0), (1.5, -0.05)],
            pareto_front(points), knee(pareto_front(points)), points[10:11], "",
        ),
        "allocation": figures.allocation_bars("allocation", {"x": allocation(VALUES, 0.0)}, ""),
        "quartiles": figures.quartile_bars("quartiles", bins, ""),
        "calibration": figures.calibration_curve(
            "calibration", [calibration(VALUES, ERRORS, LENGTHS, k) for k in range(4)], ""
        ),
        "refinement": figures.refinement_path("refinement", path, ""),
        "latency": figures.latency_bars("latency", {"a": latency(seconds, seconds[:, 0])}, ""),
    }  # fmt: skip


FIGURES = make_all()


@pytest.mark.parametrize("name", FIGURES)
def test_three_files_and_column_width(tmp_path, name):
    svg = plots.save_figure(FIGURES[name], tmp_path)
    assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8") == svg
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    root = ElementTree.fromstring(svg)
    assert float(root.get("width").removesuffix("pt")) == pytest.approx(72 * plots.WIDTH)
    texts = [t for t in root.itertext() if t.strip()]
    assert len(texts) > 3, "labels are text, not outlines"
    rows = list(csv.DictReader((tmp_path / f"{name}.csv").open(encoding="utf-8")))
    assert rows and all(None not in row.values() for row in rows)


def test_a_single_step_has_no_change_to_a_next_one():
    one = refinement(np.ones((4, 1)), np.ones((4, 0)), np.ones((4, 0)))
    svg = plots.render(figures.refinement_path("one", one, ""))["svg"].decode("utf-8")
    assert "|gₖδₖ|" in svg and "gₖ₋₁" not in svg


def test_equal_input_gives_equal_bytes():
    assert plots.render(FIGURES["pareto"]) == plots.render(FIGURES["pareto"])


def test_the_csv_holds_what_is_drawn():
    rows = FIGURES["forest"].table.rows
    assert rows == (("a", -1.0, -2.0, -0.5), ("b", 1.0, -1.0, 2.0))
    shares = {}
    for dataset, _, percent in FIGURES["allocation"].table.rows:
        shares[dataset] = shares.get(dataset, 0) + percent
    assert shares == {"x": pytest.approx(100)}


def test_colours_differ_and_every_line_has_a_marker_of_its_own():
    assert len(set(plots.COLOURS)) == len(plots.COLOURS) == len(set(plots.MARKERS))


def test_without_the_plotting_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="pip install matplotlib, or .*--figures false"):
        plots.render(FIGURES["forest"])
