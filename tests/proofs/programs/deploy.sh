#!/bin/sh
# Brings a version to an environment and writes down what it did. `sick` names versions that do not come up:
# "FILE CURE HOW": an artefact with FILE and without CURE shows a wrong version (HOW = shown), or the command fails
# although the new version is there (HOW = fails). `rolls`: for so many answers the old version and the new answer in turn.
here=${0%/*}
sha=$ORCH_SHA
[ "$ORCH_DEPLOY_KIND" = undo ] && sha=$ORCH_PREVIOUS_SHA
facts="$ORCH_ENVIRONMENT $ORCH_SHA $ORCH_GENERATION $ORCH_DEPLOY_KIND $ORCH_DEPLOY_TOKEN $ORCH_DIGEST ${sha:--} $ORCH_WORK_ITEM"
echo "start $facts" >>"$here/deploys.log"
shown=$sha
code=0
if [ "$ORCH_ENVIRONMENT" = production ] && [ "$ORCH_DEPLOY_KIND" = deploy ]; then
    while read -r bad cure how; do
        if [ -e "$ORCH_ARTIFACT/$bad" ] && ! [ -e "$ORCH_ARTIFACT/$cure" ]; then
            case $how in shown) shown=sick ;; fails) code=1 ;; esac
        fi
    done <"$here/sick"
fi
if [ -s "$here/rolls" ] && [ -e "$here/running-$ORCH_ENVIRONMENT" ]; then
    cp "$here/running-$ORCH_ENVIRONMENT" "$here/before-$ORCH_ENVIRONMENT"
    cp "$here/rolls" "$here/rolling-$ORCH_ENVIRONMENT"
fi
for file in installed running; do
    [ $file = installed ] && text=$sha || text=$shown
    printf %s "$text" >"$here/$file-$ORCH_ENVIRONMENT.$$"
    mv "$here/$file-$ORCH_ENVIRONMENT.$$" "$here/$file-$ORCH_ENVIRONMENT"
done
echo "end $facts" >>"$here/deploys.log"
exit $code
