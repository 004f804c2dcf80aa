"""What a digits network reads while one image fades into another, and which pixels count.

    python examples/digit.py [FOLDER]

With a FOLDER, two pictures and a web page are written to it.
"""

import sys
from pathlib import Path

import exactline as xl
from exactline.plot import save_picture

images, labels = xl.zoo.digits_images()
model = xl.zoo.digits_network()
line = xl.restrict(model, images[9], images[6])
print(line)
print(line.decisions())

attributions = xl.attr.IntegratedGradients(model).attribute(images[9:10], target=int(labels[9]))
print(f"{float(attributions.sum()):.6f} in all")

if len(sys.argv) > 1:
    folder = Path(sys.argv[1])
    names = [f"reads {digit}" for digit in range(10)]
    save_picture(line.plot(labels=names), folder / "digits_line.png")
    save_picture(xl.attr.plot(attributions[0], images[9]), folder / "digit_heatmap.png")
    line.to_html(folder / "digits.html", labels=names)
