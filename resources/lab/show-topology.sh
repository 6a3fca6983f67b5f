# SPDX-License-Identifier: Apache-2.0
# Prints what Linux made of the machine, one `path = value` a line: CPUs, caches, NUMA nodes, scheduler domains.
for file in /sys/devices/system/cpu/online /sys/devices/system/cpu/present \
    /sys/devices/system/cpu/cpu[0-9]*/topology/*_id /sys/devices/system/cpu/cpu[0-9]*/topology/*_list \
    /sys/devices/system/cpu/cpu[0-9]*/cache/index*/level /sys/devices/system/cpu/cpu[0-9]*/cache/index*/type \
    /sys/devices/system/cpu/cpu[0-9]*/cache/index*/shared_cpu_list \
    /sys/devices/system/node/online /sys/devices/system/node/node[0-9]*/cpulist \
    /sys/devices/system/node/node[0-9]*/distance /sys/kernel/debug/sched/domains/cpu*/domain*/name; do
    [ -e "$file" ] && echo "$file = $(cat "$file")"
done
for file in /sys/devices/system/node/node[0-9]*/meminfo; do
    [ -e "$file" ] && echo "$file = $(grep MemTotal "$file" | sed 's/.*: *//')"
done
