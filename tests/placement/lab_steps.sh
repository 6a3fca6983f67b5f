# SPDX-License-Identifier: Apache-2.0
# What happens on an emulated host: a guest starts, is disturbed in three ways, ends; then two guests run side by
# side; then small ones ask for huge pages and for cores of their own.
# Everything that is noted comes from the kernel. Runs in busybox's shell; @GUEST@ stands for the guest's shape.
export VMM_CLAIMS_DIR=/claims
mkdir -p /claims
cd /results
: >timeouts

# What the kernel says of a process's threads, and of the pages of mappings that are tied to nodes.
note() {
    for task in /proc/$2/task/*; do
        name=$(cat "$task/comm" 2>/dev/null) || continue
        cpus=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$task/status")
        last=$(sed 's/.*) //' "$task/stat" | cut -d' ' -f37)
        # One that has ended meanwhile has neither.
        [ -n "$cpus" ] && [ -n "$last" ] && echo "thread $name $cpus $last"
    done >"$1"
    sed -n 's/^[0-9a-f]* \([a-z]*[:=a-z]*[0-9,-]*\) .*anon=.*/&/p' /proc/$2/numa_maps 2>/dev/null |
        grep -E ' (bind|prefer)' | while read -r _ policy rest; do
        for word in $rest; do
            case $word in N[0-9]*=*) echo "memory $policy ${word%%=*}" ;; esac
        done
    done >>"$1"
}

# CPUs that vCPU $2 of process $1 may use.
allowed() {
    for task in /proc/$1/task/*; do
        if [ "$(cat "$task/comm" 2>/dev/null)" = "vcpu$2" ]; then
            sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "$task/status"
            return
        fi
    done
}

# Waits for at most a minute until a condition holds.
until_is() {
    what=$1
    shift
    for _ in $(seq 300); do
        if "$@"; then return; fi
        sleep 0.2
    done
    echo "$what" >>timeouts
}

# Before guest code runs, both vCPUs are where they belong: not on all CPUs, if there are several.
is_placed() {
    if [ "$count" = 1 ]; then [ -n "$(allowed "$1" 1)" ]; return; fi
    for vcpu in 0 1; do
        cpus=$(allowed "$1" $vcpu)
        if [ -z "$cpus" ] || [ "$cpus" = "0-$((count - 1))" ]; then return 1; fi
    done
}
# It has said something by then.
has_started() { [ -e /proc/$1/task ] && [ -n "$(allowed "$1" 1)" ] && [ -s "$2" ]; }
leaves() { [ "$(allowed "$1" "$2")" != "$3" ] && [ "$(allowed "$1" 0)" != "$(allowed "$1" 1)" ]; }
both_on() { [ "$(allowed "$1" 0)" = "$2" ] && [ "$(allowed "$1" 1)" = "$2" ]; }
apart() { [ "$(allowed "$1" 0)" != "$(allowed "$1" 1)" ]; }

# Pause loops are left to the kernel: the tracepoint of exits may be what makes an emulated host stop (docs/lab.md).
guest() {
    vmm --pause kernel @GUEST@ --probe "spin seconds=300" --report "$1.report" >"$1.said" 2>"$1.told" </dev/null &
}

count=$(nproc)
vmm placement explain @GUEST@ --format json >plan.json

guest alone
pid=$!
until_is "places" is_placed $pid
note placed $pid
until_is "a start" has_started $pid alone.said
sleep 1
note started $pid

if [ "$count" -gt 1 ]; then
    # A busy task on vCPU 0's CPU.
    at=$(allowed $pid 0)
    taskset -c "$at" sh -c 'while :; do :; done' &
    hog=$!
    until_is "vCPU 0 leaves CPU $at" leaves $pid 0 "$at"
    note busy $pid
    kill $hog
    # A CPU goes offline. CPU 0 cannot, so it is that of the vCPU that is not there.
    vcpu=1
    at=$(allowed $pid 1)
    if [ "$at" = 0 ]; then
        vcpu=0
        at=$(allowed $pid 0)
    fi
    if [ -e "/sys/devices/system/cpu/cpu$at/online" ]; then
        echo "$vcpu" >offline.vcpu
        note online $pid
        echo 0 >"/sys/devices/system/cpu/cpu$at/online"
        until_is "vCPU $vcpu leaves CPU $at" leaves $pid $vcpu "$at"
        note offline $pid
        vmm --placement "pin=$at" --probe "spin seconds=0.1" >pin.offline 2>&1 </dev/null
        echo 1 >"/sys/devices/system/cpu/cpu$at/online"
    else
        echo "CPU $at cannot go offline" >>timeouts
    fi
    # The cpuset shrinks to one CPU, and grows again.
    mkdir -p /sys/fs/cgroup
    mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
    echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
    mkdir -p /sys/fs/cgroup/guest
    echo $pid >/sys/fs/cgroup/guest/cgroup.procs
    echo 1 >/sys/fs/cgroup/guest/cpuset.cpus
    until_is "both on CPU 1" both_on $pid 1
    note shrunk $pid
    echo "0-$((count - 1))" >/sys/fs/cgroup/guest/cpuset.cpus
    until_is "apart again" apart $pid
    note grown $pid
fi
kill $pid
wait $pid

# Two side by side, started at the same time.
guest one
one=$!
guest two
two=$!
until_is "the first" has_started $one one.said
until_is "the second" has_started $two two.said
for turn in 1 2 3 4; do
    sleep 0.5
    note first.$turn $one
    note second.$turn $two
done
cat one.told two.told >second.told
kill $one $two
wait $one $two

# Huge pages: none in the pool, then a pool on the last node only.
small() { timeout 120 vmm --pause kernel --probe "spin seconds=0.2" "$@" 2>&1 </dev/null; }
last=$(sed 's/.*[-,]//' /sys/devices/system/node/has_memory)
small --memory 64M --hugepages 2M >pool.empty
echo 40 >"/sys/devices/system/node/node$last/hugepages/hugepages-2048kB/nr_hugepages"
small --hugepages 2M --numa "cpus=[0],memory=64M,host-node=$last" --report pool.report >pool.told
if [ "$last" != 0 ]; then
    small --hugepages 2M --numa "cpus=[0],memory=64M,host-node=0" >pool.elsewhere
fi

# Core scheduling, which asks for siblings.
small --cpus 2 --memory 64M --core-scheduling --report cores.report >cores.told
cat /sys/devices/system/cpu/smt/active >smt
exit 0
