"""The paper's tables as functions: breaks along adversarial and random lines, and samples of integrated gradients.

    python examples/paper.py [DIR]

With a folder of the published networks it takes the paper's, otherwise small ones that ship with exactline. Ten images
only: `exactline study all --out DIR` takes all, draws the pictures and writes one report.
"""

import sys
from pathlib import Path

from exactline.paper import ig, linearity, tables

data = Path(sys.argv[1]) if len(sys.argv) > 1 else None

lines = linearity.run(data, images=10)
for table in (tables.table3(lines), tables.table4(lines)):
    print(f"{table.title}\n{table.csv()}")
for finding in tables.findings(lines):
    print(finding)

samples = ig.run(data, images=10, networks=["normal" if data is None else "convsmall"])
for table in (tables.table1(samples), tables.table2(samples)):
    print(f"\n{table.title}\n{table.csv()}")
