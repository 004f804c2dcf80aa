"""How little must change before a 4 is no 4? A property in VNNLIB, and lines that look for its counterexample."""

from exactline import falsify
from exactline.verification.vnnlib import parse_vnnlib
from exactline.zoo import digits_images, digits_network

model = digits_network()
image = digits_images()[0][9]  # a handwritten 4, (1, 8, 8), pixels from 0 to 1
others = [k for k in range(10) if k != 4]


def changed(reach: float) -> str:
    """What a counterexample is: every pixel within reach, and some other digit at least as likely as the 4."""
    rows = [f"(declare-const X_{i} Real)" for i in range(64)] + [f"(declare-const Y_{k} Real)" for k in range(10)]
    for i, pixel in enumerate(image.flatten().tolist()):
        rows.append(f"(assert (and (>= X_{i} {max(pixel - reach, 0):.9f}) (<= X_{i} {min(pixel + reach, 1):.9f})))")
    return "\n".join([*rows, f"(assert (or {' '.join(f'(>= Y_{k} Y_4)' for k in others)}))"])


for reach in (0.05, 0.1, 0.2):
    found = falsify(model, parse_vnnlib(changed(reach)), shape=(1, 8, 8), lines=200)
    print(f"pixels within {reach}: {found}")
    if found.y is not None:
        print(f"  and there it reads a {int(found.y.argmax())}")
