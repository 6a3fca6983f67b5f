#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every check and every test of every member: formatting, lints, unit, property and whole-program tests.
#
# Needs Linux on x86-64, Rust and a C toolchain. Tools that only judge come from Debian's packages; without them, without
# /dev/kvm or without root the tests that need them are reported as skipped, with the reason. Ends with one plain line,
# `N passed, N failed, N skipped`, and with status 1 if anything failed.
set -u -o pipefail
cd "$(dirname "$0")/.."

# Tests are built once and thrown away: no debug information to write and link, nothing to build upon.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0
broken=()

# Packages whose command is missing: acpica-tools disassembles our ACPI tables, cpuid reads our CPUID leaves. Not chromium and
# prometheus (promtool), which look at the page and the metrics where they are there: the one is large, the other a server.
install_judges() {
    local missing=()
    command -v iasl >/dev/null || missing+=(acpica-tools)
    command -v cpuid >/dev/null || missing+=(cpuid)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "== installing from Debian's packages: ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null ||
            echo "== not installed: ${missing[*]}; what they judge is skipped"
    else
        echo "== missing, and not installed without root and apt-get: ${missing[*]}; what they judge is skipped"
    fi
}

# One check that passes or fails as a whole.
check() {
    local name=$1
    shift
    echo "== $name: $*"
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        broken+=("$name")
    fi
}

# The numbers of all `test result:` lines in a column, summed.
sum() {
    sed -n "s/^test result: .* \([0-9][0-9]*\) $1.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}

tests() {
    echo "== tests: cargo test --workspace --locked --no-fail-fast"
    # Who is started in the background, or by nohup, ignores signals that the tests send to monitors, and monitors keep what
    # is ignored.
    env --default-signal=HUP,INT,QUIT cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"
    local status=$? of_tests
    of_tests=$(sum failed)
    passed=$((passed + $(sum passed)))
    failed=$((failed + of_tests))
    # A test that does not build, or a process that dies, has no line of its own.
    if [ "$status" -ne 0 ] && [ "$of_tests" -eq 0 ]; then
        failed=$((failed + 1))
        broken+=("cargo test ended with status $status")
    fi
}

summary() {
    local skipped
    skipped=$(sum ignored)
    printf '\n== what ran\n'
    awk '/^ *Running / { name = $NF; sub(/^.*\//, "", name); sub(/-[0-9a-f]*\)$/, "", name); kind = $2 }
         /^ *Doc-tests / { name = $2; kind = "doc" }
         /^test result:/ { sub(/^test result: /, ""); sub(/; [0-9]* measured.*/, ""); print "  " name " (" kind "): " $0 }' "$log"
    if [ "$skipped" -gt 0 ]; then
        printf '\n== what was skipped, and why\n'
        sed -n 's/^test \(.*\) \.\.\. ignored,* *\(.*\)$/  \1 \2/p' "$log"
    fi
    if [ "$failed" -gt 0 ]; then
        printf '\n== what failed\n'
        [ ${#broken[@]} -eq 0 ] || printf '  %s\n' "${broken[@]}"
        sed -n 's/^test \(.*\) \.\.\. FAILED$/  \1/p' "$log"
    fi
    printf '\nfinished after %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
    echo "$passed passed, $failed failed, $skipped skipped"
}

install_judges
check formatting cargo fmt --all --check
check lints cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
tests
summary
[ "$failed" -eq 0 ]
