"""The section about cost: seconds by stage as decodings recorded them, and measured batch sizes."""

from __future__ import annotations

from pathlib import Path

from espnet_latentasr.analysis.decoded import Decoded
from espnet_latentasr.analysis.latency import Latency, latency
from espnet_latentasr.analysis.throughput import FILE, read_measured, throughput
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.experiment import Experiment
from espnet_latentasr.report.figures import latency_bars
from espnet_latentasr.report.published import published_table
from espnet_latentasr.report.tables import Column, Table


def latency_section(exp: Experiment) -> Section:
    """Seconds per stage of every configuration that decoded one depth per utterance."""
    columns = (
        Column("dataset"),
        *(Column(f"{stage} (ms)", "{:.2f}") for stage in ("encode", "prefill", "loop", "decode")),
        Column("median total (ms)", "{:.2f}"),
        Column("RTF", "{:.4f}"),
        Column("overhead %", "{:+.1f}"),
        Column("paired ratio", "{1:.3f} [{0:.3f}, {2:.3f}]", ("p10", "median", "p90")),
    )
    rows, by_tag = [], {}
    for key in exp.test_keys():
        found = exp.decoded[key]
        if key in exp.depths or not found.recorded:
            continue
        cost = _cost(found, exp.decoded.get((exp.options.frozen_tag, key[1])))
        stages = [1000 * value for value in cost.stages.values()]
        overhead = None if cost.overhead is None else 100 * cost.overhead
        rows.append(("/".join(key), *stages, 1000 * cost.median, cost.rtf, overhead, cost.paired))
        by_tag.setdefault(key[0], {})[key[1]] = cost
    note = (
        "Wall seconds of a batch shared among its utterances; configurations that ran in one job share "
        "encoding and prefill. Overhead: total seconds over the frozen decoding's; paired ratio: median "
        "[10 %, 90 %] over utterances. Encoder states that were read from a cache count as reading."
    )
    table = Table("latency", "Latency", columns, tuple(rows), note)
    name = max((n for sets in by_tag.values() for n in sets), default=None,
               key=lambda n: (sum(n in sets for sets in by_tag.values()), n.encode()))  # fmt: skip
    bars = {tag: sets[name] for tag, sets in by_tag.items() if name in sets}
    figures = (
        (latency_bars("latency", bars, f"Milliseconds per utterance by stage, {name}."),) if bars else ()
    )
    text = "" if rows else "No decoding of one depth per utterance recorded its seconds."
    measured = exp.path / FILE
    tables = (table, *((_batch_sizes(measured),) if measured.is_file() else ()))
    return Section("What it costs", text, (*tables, published_table("latency")), figures)


def _batch_sizes(path: Path) -> Table:
    """What ``benchmarks/latency.py`` measured; a batch size's first configuration is the baseline."""
    columns = (
        *map(Column, ("batch size", "configuration")),
        Column("utterances/s", "{:.2f}"),
        Column("RTF", "{:.4f}"),
        Column("ratio", "{:.3f}"),
        Column("paired ratio", "{1:.3f} [{0:.3f}, {2:.3f}]", ("p10", "median", "p90")),
        Column("peak GiB", "{:.2f}"),
    )
    device, measured = read_measured(path)
    first = {row.batch_size: row for row in reversed(measured)}
    rows = []
    for row in measured:
        base = first[row.batch_size]
        found = throughput(row, None if row is base else base)
        cells = (found.utterances, found.rtf, found.ratio, found.paired, row.peak_bytes / 2**30)
        rows.append((row.batch_size, row.configuration, *cells))
    note = (
        f"Measured on {device} by benchmarks/latency.py. Each batch was decoded by every configuration "
        "in turn in one process; ratio: seconds over those of the batch size's first configuration; "
        "paired ratio: median [10 %, 90 %] over batches; peak: memory of the process (GPU: of tensors)."
    )
    return Table("batch_sizes", "Batch sizes", columns, tuple(rows), note)


def _cost(found: Decoded, frozen: Decoded | None) -> Latency:
    if frozen is found or (frozen is not None and (frozen.utts != found.utts or not frozen.recorded)):
        frozen = None
    return latency(found.seconds, found.audio_seconds, None if frozen is None else frozen.seconds)
