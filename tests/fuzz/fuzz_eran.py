"""Random ERAN text, in both orders of an image's dims."""

from __future__ import annotations

from .harness import run


def read(data: bytes) -> None:
    from exactline.formats.eran import read_eran

    read_eran(data, "fuzz.tf", channels_first=len(data) % 2 == 0)


if __name__ == "__main__":
    run("eran", (".eran", ".tf", ".pyt"), read)
