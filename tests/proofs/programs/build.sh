#!/bin/sh
# Builds the artefact: a copy of src.
echo "$ORCH_SHA" >>"${0%/*}/builds.log"
cp -r src dist
