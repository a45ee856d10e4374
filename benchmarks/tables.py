"""Measure time and memory of an audit of large tables, by rows and columns.

Run: ``python benchmarks/tables.py [--cases 10000x50,1000000x50] [--adversary forest]``. Each case
is a CSV made by seed: 70 % of the columns have four decimals, 20 % whole numbers, 10 % words. It
runs in processes of their own, on one thread:

- floor: ``pandas.read_csv``, and one float32 copy of the numbers;
- prepare: read, check and encode the table as an audit does;
- audit: ``leakgauge audit --rounds 1``, with its report.

Times are CPU seconds, memory is the largest resident set. The ratio of prepare to floor leaves out
what an audit of 1,000 rows and 10 columns needs: imports, and torch's first gradient. It ends with
an error if a ratio exceeds its limit.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

CASES = "10000x50,100000x50,1000000x50,10000x500,100000x500,10000x5000"
MOST_SECONDS, MOST_MEMORY = 15.0, 3.0
"""Largest accepted ratios of prepare to floor."""

FLOOR = """
import sys, numpy as np, pandas as pd
frame = pd.read_csv(sys.argv[1])
np.ascontiguousarray(frame.select_dtypes("number").to_numpy(dtype=np.float32))
"""

PREPARE = """
import sys
from leakgauge.data import open_data
from leakgauge.inference.run.preparing import prepare
from leakgauge.inference.spec import InferenceSpec
spec = InferenceSpec(data=sys.argv[1], label="label", secret="sex", rounds=1, ask=("property",))
prepare(spec, open_data(sys.argv[1]))
"""

AUDIT = """
import sys
from leakgauge.cli.entry import main
file, folder, *words = sys.argv[1:]
sys.argv = ["leakgauge", "audit", file, "--label", "label", "--secret", "sex", "--rounds", "1",
            "--out", folder, "--workers", "1", *words]
main()
"""

MEASURED = """
import resource
usage = resource.getrusage(resource.RUSAGE_SELF)
print("measured", usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def make(rows: int, columns: int, path: Path) -> None:
    """Write a table of some rows and columns, two of which are secret and label."""
    rng = np.random.default_rng(0)
    secret = rng.integers(2, size=rows)
    made: dict[str, object] = {}
    for at in range(columns - 2):
        if at % 10 < 7:
            shift = 0.3 * secret if at % 20 == 0 else 0.0
            made[f"x{at}"] = (rng.normal(size=rows) + shift).round(4)
        elif at % 10 < 9:
            made[f"k{at}"] = rng.integers(100, size=rows)
        else:
            made[f"c{at}"] = rng.choice(["red", "green", "blue", "black"], rows)
    made["sex"] = np.where(secret == 1, "f", "m")
    made["label"] = (np.asarray(made["x0"]) + rng.normal(size=rows) > 0).astype(int)
    pd.DataFrame(made, copy=False).to_csv(path, index=False)


def measured(code: str, *words: str, seconds: int) -> tuple[float, float] | None:
    """Return CPU seconds and MB of a process, or None if it does not end in time or fails."""
    script = f"try:\n    exec({code!r})\nexcept SystemExit as end:\n    assert not end.code\n"
    try:
        ended = subprocess.run(
            [sys.executable, "-c", script + MEASURED, *words],
            check=True, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    except subprocess.CalledProcessError as error:
        print(error.stderr[-2000:], file=sys.stderr)
        return None
    _, used, memory = ended.stdout.strip().splitlines()[-1].split()
    return float(used), float(memory)


def shown(one: tuple[float, float] | None) -> str:
    return "not done" if one is None else f"{one[0]:7.1f} s {one[1]:6.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=CASES, help="rows x columns, separated by commas")
    parser.add_argument("--adversary", action="append", default=[], help="as leakgauge audit")
    parser.add_argument("--no-audit", action="store_true", help="only floor and prepare")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds of a process")
    options = parser.parse_args()
    words = [word for one in options.adversary for word in ("--adversary", one)]
    sound = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        make(1000, 10, path)
        base = measured(PREPARE, str(path), seconds=options.timeout)
        assert base is not None
        print(f"base {shown(base)}")
        print("rows x columns        floor               prepare             ratio        audit")
        for case in options.cases.split(","):
            rows, columns = map(int, case.split("x"))
            make(rows, columns, path)
            floor = measured(FLOOR, str(path), seconds=options.timeout)
            ready = measured(PREPARE, str(path), seconds=options.timeout)
            assert floor is not None
            ratios = (np.inf, np.inf)
            if ready is not None:
                ratios = (max(0.0, ready[0] - base[0]) / floor[0], ready[1] / (floor[1] + base[1]))
            sound &= ratios[0] <= MOST_SECONDS and ratios[1] <= MOST_MEMORY
            audit = None
            if not options.no_audit:
                out = str(Path(folder, f"out {case}"))
                audit = measured(AUDIT, str(path), out, *words, seconds=options.timeout)
            both = f"{ratios[0]:4.1f} {ratios[1]:4.1f}"
            done = "" if options.no_audit else shown(audit)
            print(f"{case:16} {shown(floor)}  {shown(ready)}  {both}  {done}", flush=True)
    sys.exit(0 if sound else "a ratio exceeds its limit")


if __name__ == "__main__":
    main()
