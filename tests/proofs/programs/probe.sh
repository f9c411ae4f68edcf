#!/bin/sh
# Says which version an environment runs.
cat "${0%/*}/running-$1"
