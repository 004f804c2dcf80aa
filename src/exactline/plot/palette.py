"""The colours of classes: one for each class in every picture and page, on light and on dark paper."""

from __future__ import annotations

from collections.abc import Sequence

# Class i has colour i of ten. They were found by a search that keeps them apart for every kind of colour vision, as
# lines and as fills; each has a contrast of at least 3 to its paper. tests/plot/test_palette.py measures both.
LIGHT_PAPER, DARK_PAPER = "#FFFFFF", "#15171B"
CLASS_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#B66F92",
    "#16181C",
    "#799D43",
    "#209FBE",
    "#7A0049",
    "#3F22E1",
    "#48835D",
    "#845922",
)
DARK_CLASS_COLOURS = (
    "#65A9EA",
    "#FF8F41",
    "#E49DBF",
    "#F2F2F2",
    "#A3C56D",
    "#61C6E5",
    "#CE6294",
    "#9F6DFF",
    "#7DB790",
    "#C4945D",
)
FILL_SHARE = 0.5  # of a class's colour in the fill of its regions; the rest is paper
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")  # tell classes apart when the colours are used up
HATCH_COUNT, TIE_HATCH = 8, 6  # patterns in page.js, and the number of the one for ties
DASH_COUNT = 3  # styles of curves: solid, dashed, dotted


def mix_colours(start: str, end: str, share: float) -> str:
    """The colour at a share of the way from one colour to another.

    >>> mix_colours("#000000", "#ffffff", 0.5)
    '#808080'
    """
    one, two = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (start, end))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(one, two, strict=True))


def interpolate_palette(stops: Sequence[str], share: float) -> str:
    """The colour at a share of the way through several colours.

    >>> interpolate_palette(("#000000", "#0000ff", "#ffffff"), 0.75)
    '#8080ff'
    """
    first = min(int(share * (len(stops) - 1)), len(stops) - 2)
    return mix_colours(stops[first], stops[first + 1], share * (len(stops) - 1) - first)


def class_colour(label: int, *, dark: bool = False) -> str:
    """The colour of a class: its curve, its band and its data points.

    >>> class_colour(4), class_colour(14), class_colour(4, dark=True)
    ('#799D43', '#799D43', '#A3C56D')
    """
    return (DARK_CLASS_COLOURS if dark else CLASS_COLOURS)[label % len(CLASS_COLOURS)]


def fill_colour(colour: str, *, dark: bool = False) -> str:
    """The fill of a class's regions: its colour, mixed with the paper, so that lines and points stand out.

    >>> fill_colour("#0072B2")
    '#80b8d8'
    """
    return mix_colours(DARK_PAPER if dark else LIGHT_PAPER, colour, FILL_SHARE)


def dark_variant(colour: str) -> str:
    """The colour on dark paper of a colour that was chosen for light paper.

    >>> dark_variant("#0072B2"), dark_variant("#000000"), dark_variant("#eeeeee")
    ('#65A9EA', '#8c8c8c', '#eeeeee')
    """
    known: dict[str, str] = dict(zip(CLASS_COLOURS, DARK_CLASS_COLOURS, strict=True))
    if colour.upper() in known:
        return known[colour.upper()]
    share = max(0.0, 0.55 - _luminance(colour))
    return colour if share == 0 else mix_colours(colour, "#ffffff", share)


def class_turn(label: int) -> int:
    """How many times the colours were used up before this class; dashes and hatches tell the turns apart.

    >>> class_turn(9), class_turn(10)
    (0, 1)
    """
    return label // len(CLASS_COLOURS)


def text_colour(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour.

    >>> text_colour("#0072B2"), text_colour("#A3C56D")
    ('#ffffff', '#111111')
    """
    return "#111111" if _luminance(colour) > 0.2 else "#ffffff"


def is_dark_colour(colour: str) -> bool:
    """Whether white stands out from a colour better than black.

    >>> is_dark_colour("#15171B"), is_dark_colour("#ffffff")
    (True, False)
    """
    return _luminance(colour) < 0.18


def _luminance(colour: str) -> float:
    """Relative luminance, from 0 for black to 1 for white."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
