"""The whole report of an experiment: all sections, and the files they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.report import depth_sections as depth
from espnet_latentasr.report import halting_sections as halting
from espnet_latentasr.report.comparison import compare_decoded, paired_section
from espnet_latentasr.report.document import Section, section_markdown, write_parts
from espnet_latentasr.report.experiment import Experiment
from espnet_latentasr.report.html import page
from espnet_latentasr.report.latency_section import latency_section
from espnet_latentasr.report.listing import listing
from espnet_latentasr.report.prompt_section import prompt_section
from espnet_latentasr.report.published import published_table
from espnet_latentasr.report.results_md import environment_section, experiment_section
from espnet_latentasr.report.sections import (
    corrections_section,
    overlap_section,
    seeds_section,
)

FOLDER = "report"


@dataclass(frozen=True)
class Output:
    """Where the report goes and how large it may be.

    audio: ``link``, ``embed`` or ``none``.  max_utterances: rows of the page's list.
    """

    folder: Path
    figures: bool = True
    max_utterances: int = 1000
    audio: str = "link"


def all_sections(experiments: Sequence[Experiment]) -> list[Section]:
    """Sections of the first experiment; the others are its seeds."""
    exp = experiments[0]
    tests = {key: exp.decoded[key] for key in exp.test_keys()}
    comparison = compare_decoded(tests, exp.options.frozen_tag, exp.depths)
    paired = paired_section(comparison, exp.unit)
    sections = [replace(paired, tables=(*paired.tables, published_table("main")))]
    keys = [(pair.tag, pair.test_set) for pair in comparison.pairs]
    sections += filter(None, (seeds_section(experiments, keys), prompt_section(exp)))
    tags = exp.depth_tags()
    for tag in tags:
        found = _depth_sections(exp, tag)
        if len(tags) > 1:
            found = [replace(section, title=f"{section.title}, {tag}") for section in found]
        sections += found
    if not tags:
        text = (
            "Halting rules, threshold sweep, quartiles, gate counterfactual, refinement path and "
            "calibration need a decoding with `depths: all`, which this experiment has not."
        )
        sections.append(Section("Depths", text))
    if (tag := exp.shown_tag()) is not None:
        sections.append(corrections_section(exp, tag))
    return [*sections, latency_section(exp), overlap_section(exp)]


def _depth_sections(exp: Experiment, tag: str) -> list[Section]:
    options = exp.options
    sets = {n: d for (t, n), d in exp.depths.items() if t == tag and n != options.dev}
    records = {name: exp.decoded[tag, name] for name in sets}
    data = depth.Pass(tag, sets, records, options.theta, options.on_halt)
    dev = exp.depths.get((tag, options.dev))
    tuned = None if dev is None else halting.tune(dev, options.on_halt)
    return [
        halting.halting_section(data, tuned, options.dev),
        halting.sweep_section(data),
        depth.allocation_section(data),
        depth.quartile_section(data),
        depth.counterfactual_section(data),
        depth.calibration_section(data),
        depth.refinement_section(data),
    ]


def write_report(experiments: Sequence[Experiment], output: Output) -> str:
    """Write ``RESULTS.md``, ``report/`` and ``report.html``; return a line that says what was written."""
    exp, folder = experiments[0], output.folder
    sections = all_sections(experiments)
    drawn = write_parts(sections, folder / FOLDER, output.figures)
    shown = FOLDER if output.figures else None
    parts = [f"# RESULTS: {exp.name}\n", environment_section(), experiment_section(exp.path)]
    parts += [section_markdown(section, shown) for section in sections]
    atomic_write_text(folder / "RESULTS.md", "\n".join(parts))
    tag, listed = exp.shown_tag(), None
    if tag is not None:
        listed = listing(exp, tag, output.max_utterances, output.audio, folder)
    title = f"{exp.name}: {exp.unit.upper()} report"
    atomic_write_text(folder / "report.html", page(title, sections, drawn, listed, exp.unit, FOLDER))
    rows = 0 if listed is None else len(listed.rows)
    return f"{folder}: RESULTS.md, report.html ({rows} utterances), {len(drawn)} figures in {FOLDER}/"
