#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Keeps a run of `vmm experiment` below docs/results: docs/keep-result.sh RUN NAME
# The reports and the plan as they are; the raw samples and machines in run.tar.xz, from which
# `vmm experiment report` makes the reports again and `vmm experiment compare` sets another run beside them.
set -eu
run=$1
to=$(dirname "$0")/results/$2
mkdir -p "$to"
for name in plan.toml run.json report.html report.md report.csv samples.csv; do
    cp "$run/$name" "$to/$name"
done
packed="plan.toml run.json machines cells"
[ ! -e "$run/look.json" ] || packed="$packed look.json"
# shellcheck disable=SC2086 # names of our own, without spaces
tar -C "$run" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@0 -cJf "$to/run.tar.xz" $packed
