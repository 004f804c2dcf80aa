"""The Gauss-Kronrod rule of 21 nodes, which holds the Gauss rule of 10 nodes: their difference estimates the error."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import legendre

from ..arrays import Floats

GAUSS_NODES = 10
KRONROD_NODES = 2 * GAUSS_NODES + 1


@lru_cache(maxsize=1)
def gauss_kronrod() -> tuple[Floats, Floats, Floats]:
    """Nodes on [-1, 1], ascending, the weights of both rules; those of the Gauss rule are zero at the other nodes.

    The added nodes are the roots of Stieltjes' polynomial of degree 11, which is orthogonal to all polynomials of
    lower degree with the Legendre polynomial of degree 10 as weight.

    >>> nodes, kronrod, gauss = gauss_kronrod()
    >>> bool(abs(kronrod @ nodes**30 - 2 / 31) < 1e-15), bool(abs(gauss @ nodes**18 - 2 / 19) < 1e-15)
    (True, True)
    """
    n = GAUSS_NODES
    t, w = legendre.leggauss(2 * n + 2)
    basis = legendre.legvander(t, n + 1)  # (points, degree + 1)
    products = (basis * (w * basis[:, n])[:, None]).T @ basis  # integrals of P_j P_n P_k
    tail = np.linalg.lstsq(products[: n + 1, : n + 1], -products[: n + 1, n + 1], rcond=None)[0]
    stieltjes = np.append(tail, 1.0)
    added = np.sort(legendre.legroots(stieltjes).real)
    slope = legendre.legder(stieltjes)
    for _ in range(3):  # Newton steps, because eigenvalues are a few ulps off
        added = added - legendre.legval(added, stieltjes) / legendre.legval(added, slope)
    own, own_weights = legendre.leggauss(n)
    nodes = np.sort(np.concatenate([own, added]))
    nodes = (nodes - nodes[::-1]) / 2  # symmetric to the last bit
    moments = np.zeros(KRONROD_NODES)
    moments[0] = 2.0
    kronrod = np.linalg.solve(legendre.legvander(nodes, KRONROD_NODES - 1).T, moments)
    gauss = np.zeros(KRONROD_NODES)
    gauss[1::2] = own_weights
    return nodes, (kronrod + kronrod[::-1]) / 2, gauss
