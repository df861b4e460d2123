# Runs check.sh in a root of its own, of the files of another one:  ROOT OUT   (in new mount, process and network namespaces)
#
# Not by chroot: the kernel lets nobody make user namespaces in one. Everything that changes is in a layer in memory, /upper.
set -eu
lower=$1 out=$2

mount --make-rprivate /
# In this namespace alone.
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
cd /mnt/root
mkdir -p packages upper old home root tmp
for directory in home root run tmp; do mount -t tmpfs -o mode=755 none "$directory"; done
chmod 1777 tmp
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind -o ro /sys sys
mount --bind "$out" packages
mount --bind /mnt/upper upper
ip link set lo up 2>/dev/null || true
pivot_root . old
# An image has no such program.
! command -v umount >/dev/null || umount -l /old
cd /
exec bash -euo pipefail -c '. /packages/checks/journey.sh; . /packages/checks/check.sh; travel'
