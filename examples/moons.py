"""Every linear region of a classifier of two moons, its decision boundary and the data, in one picture.

    python examples/moons.py [FOLDER]

Needs scikit-learn. With a FOLDER, the picture is written to it, for light and for dark pages.
"""

import sys
from pathlib import Path

from sklearn.datasets import make_moons
from sklearn.neural_network import MLPClassifier

import exactline as xl

X, y = make_moons(400, noise=0.2, random_state=0)
classifier = MLPClassifier((32, 32), max_iter=2000, random_state=0).fit(X, y)

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
for theme, name in (("light", "moons.png"), ("dark", "moons_dark.png")):
    path = None if folder is None else folder / name
    ax = xl.plot_regions(
        classifier, data=(X, y), features=["x", "y"], labels=["upper", "lower"], theme=theme, path=path
    )
print(ax.get_title("left"))

line = xl.restrict(classifier, X[y == 0][0], X[y == 1][0])
print(line.decisions())
