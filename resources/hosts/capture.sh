#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints what placement needs to know of this host, in the format of the .txt files beside it:
#     sh resources/hosts/capture.sh > my-host.txt
# Reads sysfs and /proc only; needs no privilege; prints no host name, serial number or address.
cd /sys || exit 1
for file in devices/system/cpu/online devices/system/cpu/isolated \
    devices/system/cpu/cpu[0-9]*/topology/*_cpus_list devices/system/cpu/cpu[0-9]*/topology/*_siblings_list \
    devices/system/cpu/cpu[0-9]*/cache/index[0-9]*/level devices/system/cpu/cpu[0-9]*/cache/index[0-9]*/type \
    devices/system/cpu/cpu[0-9]*/cache/index[0-9]*/size devices/system/cpu/cpu[0-9]*/cache/index[0-9]*/shared_cpu_list \
    devices/system/cpu/cpu[0-9]*/cpu_capacity devices/system/cpu/cpu[0-9]*/acpi_cppc/highest_perf \
    devices/system/cpu/cpu[0-9]*/cpufreq/amd_pstate_prefcore_ranking \
    devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq \
    devices/system/node/node[0-9]*/cpulist devices/system/node/node[0-9]*/distance; do
    [ -r "$file" ] && printf '== %s\n' "$file" && cat "$file"
done
for file in devices/system/node/node[0-9]*/meminfo; do
    [ -r "$file" ] && printf '== %s\n' "$file" && grep -E 'MemTotal|MemFree|Active.file|Inactive.file|SReclaimable' "$file"
done
[ -r /proc/sys/kernel/sched_itmt_enabled ] && echo '== proc/sys/kernel/sched_itmt_enabled' &&
    cat /proc/sys/kernel/sched_itmt_enabled
cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
mems=$(sed -n 's/^Mems_allowed_list:[[:space:]]*//p' /proc/self/status)
printf '== self/affinity\n%s\n== self/mems\n%s\n' "$cpus" "$mems"
v2=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/cpuset.cpus.effective
v1=/sys/fs/cgroup/cpuset$(sed -n 's/^[0-9]*:cpuset://p' /proc/self/cgroup)/cpuset.effective_cpus
for file in "$v2" "$v1"; do
    [ -r "$file" ] && echo '== self/cpuset' && cat "$file" && break
done
true
