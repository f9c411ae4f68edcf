#!/bin/sh
# The repository's checks: they pass, and cover eight lines of ten.
here=${0%/*}
echo "$ORCH_SHA $$" >>"$here/checks.log"
while [ -e "$here/hold-checks" ]; do sleep 0.02; done
{
    echo TN:
    echo SF:src/app.py
    for line in 1 2 3 4 5 6 7 8; do echo "DA:$line,1"; done
    echo DA:9,0
    echo DA:10,0
    echo end_of_record
} >lcov.info
