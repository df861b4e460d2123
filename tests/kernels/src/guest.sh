#!/usr/bin/busybox sh
# The first process of an emulated machine. It mounts the initramfs over itself, since pivot_root is EINVAL in a mount without a parent,
# tries the programs in both tiers as an ordinary user, and prints each step between two lines with @@.
B=/usr/bin/busybox
if [ "$1" != second ]; then
  $B mkdir -p /new /proc /sys /dev /tmp /run /mnt
  $B mount --bind / /new
  cd /new
  $B mount --move . /
  exec $B chroot . /init second
fi
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
$B mkdir -p /dev/pts /dev/shm
$B mount -t devpts devpts /dev/pts
$B mount -t tmpfs -o mode=1777 shm /dev/shm
$B mount -t tmpfs -o mode=1777 tmp /tmp
$B ln -sf /proc/self/fd /dev/fd
$B mount -t securityfs sec /sys/kernel/security
$B mount -t cgroup2 none /sys/fs/cgroup
exec >/dev/console 2>&1
$B dmesg -n 1
$B ip link set lo up

export PATH=/usr/local/bin:/usr/bin LANG=C.UTF-8 HOME=/home/user USER=user
$B grep -q guest.boot /proc/cmdline && echo "@@booted" && $B poweroff -f
. /guest.env
$B mkdir -p /home/user/namespaced /home/user/flat /home/worlds
$B chown -R 1000:1000 /home/user /home/worlds
# The corpus floods descriptors, and its user must be able to raise its limit for that.
ulimit -Hn 8192

# As the user, in the tier's directory: a home is no project.
as_user() {
  python3 -c 'import os, sys; os.chdir("/home/user/" + os.environ["TIER"]); os.setgroups([]); os.setgid(1000); os.setuid(1000); os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}

# step NAME COMMAND…
step() {
  name=$1
  shift
  export TIER=${tier#control}
  as_user "$@" >/tmp/out 2>/tmp/errors </dev/null
  status=$?
  printf '\n@@begin %s %s %s\n' "$tier" "$name" "$status"
  $B cat /tmp/out
  [ $status = 0 ] || { printf '\n@@errors\n'; $B tail -c 2000 /tmp/errors; }
  printf '\n@@end\n'
}

corpus() {
  step runner python3 -B /corpus/run.py "$1" --mode user --only "$PROBES" --lanes 1 --worlds /home/worlds --path /usr/local/bin --out /home/user/results
  step corpus python3 -B /guest/verdicts.py "/home/user/results/$1-user-partial.json"
}

tier=control
step release uname -r
for tier in namespaced flat; do
  if [ $tier = flat ]; then
    switch=/proc/sys/kernel/unprivileged_userns_clone
    [ -e $switch ] || switch=/proc/sys/user/max_user_namespaces
    echo 0 >$switch
  fi
  step doctor lazaret doctor --json
  step attack lazaret doctor --attack --json
  step run sh -c "git init -q && lazaret run -- bash -c 'echo \$((40 + 2)) > made && git add made && git status --short'"
  [ $tier = flat ] || (tier=control && corpus none)
  corpus lazaret
done
echo "@@done"
$B poweroff -f
