# SPDX-License-Identifier: Apache-2.0
# Says what Linux made of the machine, one `seen PATH=VALUE` a line: CPUs, caches, NUMA nodes, scheduler domains.
# All files in one process: on an emulated host starting one is what takes time. Not with the shell's `read`, which reads
# bytes and gets nothing out of a topology list. `sched_verbose` must be on the command line.
# The kernel is quiet meanwhile: its messages would break lines on the console.
dmesg -n 1
cd /sys/devices/system
grep -H '' cpu/online cpu/cpu[0-9]*/topology/*_list cpu/cpu[0-9]*/cache/index*/level cpu/cpu[0-9]*/cache/index*/type \
    cpu/cpu[0-9]*/cache/index*/shared_cpu_list node/online node/node[0-9]*/cpulist node/node[0-9]*/distance |
    sed 's/^/seen /; s/:/=/'
grep -H MemTotal node/node[0-9]*/meminfo | sed 's/^\([^:]*\):.*MemTotal: *\([0-9]*\) kB/seen \1=\2/'
dmesg | sed -n 's/.*\(CPU[0-9]* attaching sched-domain\).*/seen \1/p; s/.*\(domain-[0-9]*: span=.*\)/seen \1/p'
# Waits until all of it is sent: power-off has messages too, and they go past what waits.
stty onlcr
dmesg -n 7
