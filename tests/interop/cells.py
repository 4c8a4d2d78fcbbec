"""What one client said about one agent, and the table of all of them.

Not here: which clients and agents there are, `suites.py` and `suite_face.py`.
"""

import harness


class Cell:
    """The checks of one client with one agent, by the lines that it printed."""

    def __init__(self, name, code, output):
        self.name = name
        lines = output.splitlines()
        self.passed = sum(line.startswith("ok ") for line in lines)
        self.failures = [line for line in lines if line.startswith("FAILED ")]
        self.omitted = [line.removeprefix("left out ") for line in lines if line.startswith("left out ")]
        if code != 0 and not self.failures:
            self.failures = [f"FAILED exit code {code}: {output[-2000:]}"]
        if code == 0 and self.passed == 0:
            self.failures = ["FAILED no check ran"]

    def __str__(self):
        return f"{self.passed}/{self.passed + len(self.failures)}"


class Omitted:
    """A pair that is not run, and why."""

    passed, failures = 0, []

    def __init__(self, name, reason):
        self.name = name
        self.omitted = [reason]

    def __str__(self):
        return "-"


def ask(name, argv, limit):
    """Runs a client to its end."""
    code, output = harness.run_limited(argv, limit)
    return Cell(name, code, output)


def show(title, cells, rows, columns):
    """Prints the table, then what failed, then why something was left out."""
    width = max(11, *(len(column) + 2 for column in columns))
    first = max(12, *(len(row) + 2 for row in rows))
    print(f"\n{title:<{first}}" + "".join(f"{column:>{width}}" for column in columns))
    for row in rows:
        print(f"{row:<{first}}" + "".join(f"{cells[row, column]!s:>{width}}" for column in columns))
    for cell in cells.values():
        for failure in cell.failures:
            print(f"\n{cell.name}: {failure}")
    reasons = {}
    for cell in cells.values():
        for reason in cell.omitted:
            reasons.setdefault(reason, []).append(cell.name)
    for reason, names in reasons.items():
        print(f"left out: {reason} ({', '.join(names)})")
