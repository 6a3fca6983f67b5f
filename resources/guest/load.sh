# SPDX-License-Identifier: Apache-2.0
# Loads modules that lie in the root of the initial file system, packed or not.
load() {
    for module in "$@"; do
        [ -e "/$module.ko" ] || unxz -c "/$module.ko.xz" >"/$module.ko"
        insmod "/$module.ko"
    done
}
