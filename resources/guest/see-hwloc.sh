# SPDX-License-Identifier: Apache-2.0
# Says what hwloc makes of the machine, each of its lines behind `lstopo|`. Runs behind see-topology.sh.
dmesg -n 1
/usr/bin/lstopo-no-graphics --of console --no-io | sed 's/^/lstopo|/'
# Waits until all of it is sent: power-off has messages too, and they go past what waits.
stty onlcr
dmesg -n 7
