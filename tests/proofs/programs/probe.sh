#!/bin/sh
# Says which version an environment runs; while it is being replaced, the old and the new one in turn.
here=${0%/*}
left=$(cat "$here/rolling-$1" 2>/dev/null)
if [ "${left:-0}" -gt 0 ]; then
    echo $((left - 1)) >"$here/rolling-$1"
    [ $((left % 2)) -eq 1 ] || exec cat "$here/before-$1"
fi
cat "$here/running-$1"
