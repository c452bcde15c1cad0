"""The matched-pairs test by hand, against a plain state machine and NIST's sc_stats."""

import importlib.util
import math
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.stats.mapsswe import mapsswe, segment_errors
from espnet_latentasr.text.edit_distance import align

GOLDEN = Path(__file__).parents[1] / "golden" / "make_sclite_golden.py"


def segments(baseline, system, **options):
    return segment_errors(baseline, system, **options).tolist()


@pytest.mark.parametrize(
    ("baseline", "system", "expected"),
    [
        # Two good words end a segment; one does not.
        ("CSCCSC", "CCCCCC", [[1, 0], [1, 0]]),
        ("CSCSCC", "CCCCCC", [[2, 0]]),
        # Good is what both have right.
        ("SCCCCS", "CCCSCC", [[1, 0], [1, 1]]),
        ("SCCS", "CSCC", [[2, 1]]),
        # A word inserted between two good ones keeps the segment open.
        ("SCICS", "CCCC", [[3, 0]]),
        ("SCCIS", "CCCC", [[1, 0], [2, 0]]),
        # The word after an insertion is the first good one.
        ("ICCS", "CCC", [[1, 0], [1, 0]]),
        ("ICS", "CC", [[2, 0]]),
        # Insertions at both ends, of either system.
        ("CCI", "ICC", [[0, 1], [1, 0]]),
        ("CC", "CCI", [[0, 1]]),
        ("II", "", [[2, 0]]),
        ("CC", "CC", []),
        ("", "", []),
    ],
)
def test_segments_by_hand(baseline, system, expected):
    assert segments([baseline], [system]) == expected


def test_an_utterance_ends_a_segment():
    assert segments(["CS", "SC"], ["CC", "CC"]) == [[1, 0], [1, 0]]
    assert segments(["CS", "", "CI"], ["SC", "", "C"]) == [[1, 1], [1, 0]]


def test_number_of_buffer_words():
    assert segments(["SCS"], ["CCC"], buffer_words=1) == [[1, 0], [1, 0]]
    assert segments(["SCCS"], ["CCCC"], buffer_words=3) == [[2, 0]]


def test_z_by_hand():
    # Differences system - baseline per segment: -1, -1, +1, -2; mean -0.75, variance 19/12.
    baseline, system = ["SCC", "SCC", "CCC", "SSCC"], ["CCC", "CCC", "SCC", "CCCC"]
    found = mapsswe(baseline, system)
    z = -0.75 / math.sqrt(19 / 12 / 4)
    assert (found.segments, found.mean) == (4, -0.75)
    assert (found.sd, found.z) == (pytest.approx(math.sqrt(19 / 12)), pytest.approx(z))
    assert found.p == pytest.approx(math.erfc(abs(z) / math.sqrt(2)))


def test_no_difference_and_no_spread():
    same = mapsswe(["SC", "CC"], ["SC", "CC"])
    assert (same.segments, same.z, same.p) == (1, 0, 1)
    assert mapsswe([], []).p == mapsswe(["CC"], ["CC"]).p == 1
    for baseline, system in ((["SC"], ["CC"]), (["SC", "SC"], ["CC", "CC"])):
        found = mapsswe(baseline, system)
        assert found.mean == -1 and math.isnan(found.z) and math.isnan(found.p)


def by_state_machine(baseline, system, buffer_words):
    """The definition word by word."""
    found = []
    for one, two in zip(baseline, system):
        errors, good, pending = [0, 0], 0, False
        places = [re.findall("(I*)([CSD]|$)", ops) for ops in (one, two)]
        words = len(re.sub("I", "", one))
        for place in range(words + 1):
            (ins1, op1), (ins2, op2) = (side[place] for side in places)
            if ins1 or ins2:
                pending, good = True, 0
            errors = [errors[0] + len(ins1), errors[1] + len(ins2)]
            if place == words:
                break
            wrong = [op1 != "C", op2 != "C"]
            errors = [errors[0] + wrong[0], errors[1] + wrong[1]]
            if any(wrong):
                pending, good = True, 0
            elif pending:
                good += 1
                if good == buffer_words:
                    found.append(errors)
                    errors, good, pending = [0, 0], 0, False
        if pending:
            found.append(errors)
    return found


@st.composite
def two_alignments(draw):
    words = draw(st.integers(0, 10))

    def one():
        parts = [draw(st.sampled_from(["C", "C", "C", "S", "D", "IC", "IIS"])) for _ in range(words)]
        return "".join(parts) + draw(st.sampled_from(["", "", "I"]))

    return one(), one()


@settings(max_examples=60)
@given(st.lists(two_alignments(), max_size=4), st.integers(1, 3))
def test_same_as_the_state_machine(pairs, buffer_words):
    baseline, system = [a for a, _ in pairs], [b for _, b in pairs]
    found = segments(baseline, system, buffer_words=buffer_words)
    assert found == by_state_machine(baseline, system, buffer_words)
    assert sum(e for e, _ in found) == sum(len(re.findall("[SDI]", ops)) for ops in baseline)


@settings(max_examples=40)
@given(st.lists(two_alignments(), max_size=6))
def test_swapping_systems_turns_the_sign(pairs):
    baseline, system = [a for a, _ in pairs], [b for _, b in pairs]
    one, two = mapsswe(baseline, system), mapsswe(system, baseline)
    assert one.mean == -two.mean and one.segments == two.segments
    assert one.p == pytest.approx(two.p, nan_ok=True)


def test_refused():
    with pytest.raises(ValueError, match="2 and 1 alignments"):
        mapsswe(["C", "C"], ["C"])
    with pytest.raises(ValueError, match="alignment 2 of 2 has 2 reference words .* and 1 in"):
        mapsswe(["C", "CS"], ["C", "CI"])
    for letters in ("CX", "C|", "Cé"):
        with pytest.raises(ValueError, match="another letter"):
            mapsswe([letters], ["C"])
    with pytest.raises(ValueError, match="at least 1"):
        mapsswe(["C"], ["C"], buffer_words=0)


def load_golden():
    spec = importlib.util.spec_from_file_location("oracle", GOLDEN)
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    return oracle


@pytest.mark.parametrize("seed", [0, 1])
def test_same_as_sc_stats(tmp_path, seed):
    oracle = load_golden()
    binary = shutil.which("sc_stats") or shutil.which("sc_stats", path="/usr/lib/sctk/bin")
    if oracle.find_sclite() is None or binary is None:
        pytest.skip("sclite and sc_stats are not installed (Debian: apt-get install sctk)")
    rng = random.Random(seed)
    words = oracle.VOCABULARY["english"]
    # sc_stats forgets words that the second system inserts at an utterance's end; two more words
    # at the end, which nobody gets wrong, keep that out of the comparison.
    refs = [[rng.choice(words) for _ in range(rng.randint(1, 25))] for _ in range(150)]

    def heard(reference):
        kept = [rng.choice(words) if rng.random() < 0.12 else w for w in reference]
        return [w for w in kept if rng.random() < 0.95 for w in [w] * rng.choice([1] * 20 + [2])]

    texts = {"ref": refs, "one": list(map(heard, refs)), "two": list(map(heard, refs))}
    for name, rows in texts.items():
        rows[:] = [[*row, "zend", "zstop"] for row in rows]
        lines = [f"{' '.join(row)} (s-{i:03d})\n" for i, row in enumerate(rows)]
        (tmp_path / f"{name}.trn").write_text("".join(lines), encoding="utf-8")
    command = [oracle.find_sclite(), "-r", "ref.trn", "trn", "-h", "one.trn", "trn", "one"]
    command += ["-h", "two.trn", "trn", "two", "-i", "rm", "-o", "sgml", "stdout"]
    sgml = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    test = [binary, "-p", "-t", "mapsswe", "-v", "-n", "-"]
    out = subprocess.run(test, cwd=tmp_path, input=sgml, capture_output=True, check=True).stdout
    line = re.search(rb"MTCH_PR_RESULTS.*", out).group().decode()
    names = (r"# segs: (\d+)", r"mean: (\S+)\)", r"std dev: (\S+)\)", r"Z Stat: (\S+)\)")
    theirs = [float(re.search(name, line).group(1)) for name in names]
    one, two = (
        [align(r, h).operations for r, h in zip(refs, texts[side])] for side in ("one", "two")
    )
    found = mapsswe(two, one)  # their difference is the first system's errors minus the second's
    assert found.segments == theirs[0]
    assert [found.mean, found.sd, found.z] == pytest.approx(theirs[1:], abs=0.00051)
    assert np.isfinite(found.p)
