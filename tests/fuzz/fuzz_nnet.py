"""Random .nnet text, read with and without its normalisation."""

from __future__ import annotations

from .harness import run


def read(data: bytes) -> None:
    from exactline.formats.nnet import read_nnet

    read_nnet(data, "fuzz", normalize=len(data) % 2 == 0)


if __name__ == "__main__":
    run("nnet", (".nnet",), read)
