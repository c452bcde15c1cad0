"""The refinement path from real vectors, and inconsistent records."""

import numpy as np
import pytest

from espnet_latentasr.analysis.refinement import LEVELS, refinement, spread


def path(vectors):
    """Norms, cosines, jumps of vectors (U, N, D)."""
    norms = np.linalg.norm(vectors, axis=-1)
    dots = (vectors[:, 1:] * vectors[:, :-1]).sum(-1)
    jumps = np.linalg.norm(vectors[:, 1:] - vectors[:, :-1], axis=-1)
    return norms, dots / (norms[:, 1:] * norms[:, :-1]), jumps


def test_statistics_of_real_vectors():
    norms, cosines, jumps = path(np.random.default_rng(0).normal(size=(50, 3, 8)))
    found = refinement(norms, cosines, jumps)
    assert len(found.norms) == 3 and len(found.cosines) == len(found.jumps) == 2
    assert found.norms[1].mean == pytest.approx(norms[:, 1].mean())
    assert found.path_cosine.mean == pytest.approx(cosines.mean())
    assert found.path_jump.sd == pytest.approx(jumps.mean(1).std(ddof=1))
    assert found.jumps[0].quantiles[2] == pytest.approx(np.median(jumps[:, 0]))


def test_one_vector_written_again_and_again():
    found = refinement(*path(np.tile(np.array([[3.0, 4.0]]), (2, 4, 1))))
    assert found.path_cosine.mean == pytest.approx(1)
    assert found.path_jump.mean == 0


def test_one_step_has_no_pairs():
    found = refinement(np.ones((3, 1)), np.ones((3, 0)), np.ones((3, 0)))
    assert (found.cosines, found.path_cosine, found.path_jump) == ((), None, None)


def test_records_of_different_paths_are_refused():
    norms, cosines, jumps = path(np.random.default_rng(1).normal(size=(4, 3, 8)))
    jumps[2, 1] += 1
    with pytest.raises(ValueError, match="row 2, steps 2 and 3: jump"):
        refinement(norms, cosines, jumps)
    with pytest.raises(ValueError, match=r"\(U, N - 1\)"):
        refinement(norms, cosines[:, :1], jumps)


def test_spread():
    assert spread(np.array([])) is None
    assert np.isnan(spread(np.array([1.0])).sd)
    assert len(spread(np.arange(5.0)).quantiles) == len(LEVELS)
