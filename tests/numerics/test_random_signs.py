"""The random signs of rounding errors on a GPU, which come from a hash."""

import torch

from exactline.numerics.point_errors import _hashed_signs

SEEDS, COUNT = 64, 8000
MAX_DEVIATIONS = 5.5  # standard deviations: of the sums below, one in ten million is larger by chance


def test_hashed_signs_are_not_correlated():
    """Neither with their neighbours nor with those of other nodes, and as many are positive as negative."""
    signs = torch.stack([_hashed_signs(seed, (8, 1, 1000), torch.device("cpu")).flatten() for seed in range(SEEDS)])
    assert signs.dtype == torch.int8
    assert set(signs.unique().tolist()) == {-1, 1}
    signs = signs.to(torch.float64)
    bound = MAX_DEVIATIONS * COUNT**0.5
    assert signs.sum(1).abs().max() < bound
    assert ((signs @ signs.T).fill_diagonal_(0)).abs().max() < bound
    for lag in (1, 2, 7, 64, 1000):
        assert (signs[:, lag:] * signs[:, :-lag]).sum(1).abs().max() < bound
