# SPDX-License-Identifier: Apache-2.0
# Runs the agent with the kernel silent: its messages would break the agent's lines on the console.
dmesg -n 1
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
/bin/agent
status=$?
# Waits until all of it is sent: power-off has messages too, and they go past what waits.
stty onlcr
exit $status
