"""The paper's tables as functions: breaks along adversarial and random lines, and samples of integrated gradients.

    python examples/paper.py [DIR]

With a folder of the published networks it studies the paper's networks, otherwise small bundled ones, on ten images.
`exactline study all --out DIR` studies all images, draws the pictures and writes one report.
"""

import sys
from pathlib import Path

from exactline.paper.tables import ig, ig_report, linearity, linearity_report

data = Path(sys.argv[1]) if len(sys.argv) > 1 else None

lines = linearity.run(data, images=10)
for table in (linearity_report.build_table3(lines), linearity_report.build_table4(lines)):
    print(f"{table.title}\n{table.to_csv()}")
for finding in linearity_report.summarize_findings(lines):
    print(finding)

samples = ig.run(data, images=10, networks=["normal" if data is None else "convsmall"])
for table in (ig_report.build_table1(samples), ig_report.build_table2(samples)):
    print(f"\n{table.title}\n{table.to_csv()}")
