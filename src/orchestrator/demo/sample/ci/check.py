"""Run the tests and leave coverage.json behind. Ends non-zero when a test fails."""

import subprocess
import sys

TESTS = ["-m", "coverage", "run", "--source=greeter", "-m", "unittest", "discover", "-s", "tests", "-t", "."]
REPORT = ["-m", "coverage", "json", "-q", "-o", "coverage.json"]

for arguments in (TESTS, REPORT):
    code = subprocess.call([sys.executable, *arguments])
    if code != 0:
        sys.exit(code)
