#!/bin/sh
# Brings a version to an environment and writes down what it did. `sick` names versions that do not come up:
# "FILE CURE HOW": an artefact with FILE and without CURE shows a wrong version (HOW = shown), or the command fails
# although the new version is there (HOW = fails), or nothing comes up at all (HOW = dead; only where production is the
# service itself: then `ourselves` is there, and the service is asked to restart). `rolls`: for so many answers the old version and the new answer in turn.
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
ourselves=
[ "$ORCH_ENVIRONMENT" = production ] && [ -e "$here/ourselves" ] && ourselves=yes
for file in installed ${ourselves:-running}; do
    [ $file = yes ] && continue
    [ $file = installed ] && text=$sha || text=$shown
    printf %s "$text" >"$here/$file-$ORCH_ENVIRONMENT.$$"
    mv "$here/$file-$ORCH_ENVIRONMENT.$$" "$here/$file-$ORCH_ENVIRONMENT"
done
[ -z "$ourselves" ] || touch "$here/restart"
echo "end $facts" >>"$here/deploys.log"
exit $code
