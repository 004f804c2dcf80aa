"""Make the Python code of the service's messages from its .proto files, or check that it is current.

python scripts/protos.py           # write what is out of date
python scripts/protos.py --check   # say what is, and end with status 1
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

PROTOS = Path(__file__).parents[1] / "src" / "exactline" / "rpc" / "protos"


def generated(into: Path) -> dict[Path, bytes]:
    """Fresh code by its path below the folder of the .proto files."""
    from grpc_tools import protoc

    common = str(files("grpc_tools").joinpath("_proto"))
    sources = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    options = [f"-I{PROTOS}", f"-I{common}", f"--python_out={into}", f"--pyi_out={into}"]
    if protoc.main(["protoc", *options, *sources]):
        raise SystemExit("protoc refused the .proto files")
    return {path.relative_to(into): path.read_bytes() for path in into.rglob("*_pb2.py*") if path.suffix != ".pyc"}


def main() -> None:
    """Write or check."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = generated(Path(folder))
    stale = [p for p, code in fresh.items() if not (PROTOS / p).is_file() or (PROTOS / p).read_bytes() != code]
    stale += [p.relative_to(PROTOS) for p in PROTOS.rglob("*_pb2.py*") if p.relative_to(PROTOS) not in fresh]
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"not current, run make protos: {', '.join(map(str, sorted(stale)))}")
        return
    for path in stale:
        if path in fresh:
            (PROTOS / path).write_bytes(fresh[path])
            print(f"wrote {path}")
        else:
            print(f"{path} has no .proto any more")


if __name__ == "__main__":
    main()
