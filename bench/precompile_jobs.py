"""Makes layouts and a jobs file for `sparsekiln precompile`: COUNT kernels for sm_80, sm_90 and sm_100.

Usage: precompile_jobs.py COUNT FOLDER [--short]. COUNT is a multiple of 4: forward and grad_input of each layout, for two
batches. With --short 4 kernels, for sm_90 only. SPARSEKILN_TOOL names the command (by default build/tools/sparsekiln).
"""

import json
import os
import pathlib
import subprocess
import sys

import publish


def main() -> int:
    parser = publish.parser(__doc__, build=False)
    parser.add_argument("count", type=int, metavar="COUNT")
    parser.add_argument("folder", type=pathlib.Path, metavar="FOLDER")
    given = parser.parse_args()
    count, folder = given.count, given.folder
    if count < 4 or count % 4:
        parser.error(f"{count} is no multiple of 4")
    count, archs = (4, ["sm_90"]) if given.short else (count, ["sm_80", "sm_90", "sm_100"])
    folder.mkdir(parents=True, exist_ok=True)
    tool = os.environ.get("SPARSEKILN_TOOL", "build/tools/sparsekiln")
    layouts = [f"layout-{number:02}.npy" for number in range(count // 4)]
    for number, layout in enumerate(layouts):
        size = 16 + 4 * (number % 8)
        command = [tool, "layout", "make", "random", "--size", str(size), "--density", "0.2", "--seed", str(number)]
        subprocess.run([*command, "-o", folder / layout], check=True, stdout=subprocess.DEVNULL)
    job = {
        "layouts": layouts,
        "operations": ["forward", "grad_input"],
        "blocks": ["32"],
        "batches": [64, 256],
        "dtypes": ["f16"],
    }
    (folder / "jobs.json").write_text(json.dumps({"archs": archs, "jobs": [job]}, indent=1) + "\n")
    print(f"{folder / 'jobs.json'}: {count} kernels for {', '.join(archs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
