# SPDX-License-Identifier: Apache-2.0
# One unit of a build, as a compiler run looks to the kernel: $1 is the unit's name, the directory is on tmpfs.
# Look at headers (metadata), make a source, compute over it in processes of their own, write an object, put it in its place.
for header in /build/include/*; do [ -e "$header" ] || exit 1; done
head -c 32768 /bin/busybox >"/build/$1.c"
sha256sum "/build/$1.c" >"/build/$1.d"
gzip -c "/build/$1.c" >"/build/$1.o.part"
mv "/build/$1.o.part" "/build/$1.o"
rm "/build/$1.c" "/build/$1.d" "/build/$1.o"
