#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes vmm/boot-order.ld: the functions that a start calls, in the order of their first call, for the linker to put side
# by side. To be run after changes that move the figures of docs/performance.md; a name that no longer exists does no harm,
# a function that is not named stands behind the others. Needs /dev/kvm, cc, nm and a release:
#
#     cargo build --release -p vmm && resources/bench/boot-order.sh
set -eu -o pipefail
cd "$(dirname "$0")/../.."
vmm=target/x86_64-unknown-linux-gnu/release/vmm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -Wall -Wextra -o "$work/order" resources/bench/order.c
cc -nostdlib -static -no-pie -Wl,--build-id=none -Wl,-T,resources/bench/payload.ld -o "$work/halting" resources/bench/payload.S

# A guest that halts: what is called afterwards, for the summary and the report, is nobody's hurry.
nm --defined-only "$vmm" | "$work/order" 5 "$vmm" --kernel "$work/halting" --cpus 2 >"$work/called" 2>/dev/null

# A function of Rust has a section of its own, of another name if it is marked as cold. Of the C library whole members are linked, so those that hold what is called.
rust='^(_ZN|_R)'
nm -A --defined-only "$(cc -print-file-name=libc.a)" 2>/dev/null | awk -F '[: ]+' '{ print $NF, $2 }' >"$work/members"
{
    echo '/* SPDX-License-Identifier: Apache-2.0 */'
    echo '/* Written by resources/bench/boot-order.sh: what a start calls, in order. Hashes of names are left open. */'
    echo 'SECTIONS {'
    echo '    .text.boot : {'
    grep -E "$rust" "$work/called" | sed -E -e 's/17h[0-9a-f]{16}E.*$/17h*/' -e 's/Cs[0-9A-Za-z]+_/Cs*_/g' |
        awk '!seen[$0]++ { print "        *(.text." $0 " .text.unlikely." $0 ")" }'
    grep -vE "$rust" "$work/called" | awk 'NR == FNR { called[$1]; next } $1 in called && !seen[$2]++ {
        print "        *libc.a:" $2 "(.text .text.*)" }' - "$work/members"
    echo '    }'
    echo '} INSERT BEFORE .text;'
} >vmm/boot-order.ld
echo "$(grep -c '^ *\*' vmm/boot-order.ld) functions, members of the C library included"
