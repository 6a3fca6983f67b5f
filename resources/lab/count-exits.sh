# SPDX-License-Identifier: Apache-2.0
# Counts what a monitor's guest leaves for, up to the first line of its init. Runs on the lab host.
#
# count NAME COMMAND... leaves in the current directory: NAME.exits, "kvm:kvm_exit REASON" and the like with how often;
# NAME.kvm, the counters of KVM for this VM by their names in debugfs; NAME.ms, from the start of the command to the line;
# NAME.threads, proc_pid_stat(5) of each thread of the monitor; NAME.console. Kernel counters, so exact; the monitor is stopped at the line and then killed.
TRACING=/sys/kernel/tracing/events/kvm
COUNTED="kvm_exit:exit_reason kvm_pio:port,rw kvm_mmio:gpa,type kvm_msr:ecx,write"

count() {
    name=$1
    shift
    for event in $COUNTED; do
        echo "hist:keys=${event#*:}" >$TRACING/${event%:*}/trigger
    done
    mkfifo $name.line
    started=$(cut -d' ' -f1 /proc/uptime)
    "$@" >$name.line 2>$name.told </dev/null &
    monitor=$!
    timeout 900 awk '{ print } /guest: init/ { exit }' <$name.line >$name.console
    kill -STOP $monitor
    ended=$(cut -d' ' -f1 /proc/uptime)
    for event in $COUNTED; do
        sed -n "s/^{ *\(.*\) } hitcount: *\([0-9]*\)/${event%:*} \1 = \2/p" $TRACING/${event%:*}/hist | tr -s ' '
        echo "!hist:keys=${event#*:}" >$TRACING/${event%:*}/trigger
    done >$name.exits
    for file in /sys/kernel/debug/kvm/$monitor-*/*; do
        [ -f $file ] && echo "${file##*/} $(cat $file)"
    done >$name.kvm
    cat /proc/$monitor/task/*/stat >$name.threads
    kill -KILL $monitor
    wait $monitor
    echo "$started $ended" | awk '{ printf "%d\n", ($2 - $1) * 1000 }' >$name.ms
    rm $name.line
}
