# Makes the root of an emulated machine in $ROOT, and its initramfs $FILE, of the packages that are named.
set -euo pipefail

# Nothing in the machines reads these.
left_out=(doc man info locale lintian perl perl5 bash-completion gitweb i18n)
left_out=("${left_out[@]/#/--exclude=./usr/share/}")
left_out+=(--exclude=./usr/lib/*/{gconv,perl,perl-base,libperl*} --exclude=./usr/lib/git-core/git-{http,remote}-*)

rm -rf "$ROOT"
mkdir -p "$ROOT"
cd "$ROOT"
for folder in bin lib lib64 sbin; do
  mkdir -p "usr/$folder"
  ln -s "usr/$folder" "$folder"
done
for package in "$@"; do
  dpkg-deb --fsys-tarfile "$package" |
    tar --extract --keep-directory-symlink --no-same-owner "${left_out[@]}"
done
ln -sf bash usr/bin/sh

mkdir -p etc root home/user/results usr/local/bin var/tmp guest
chmod 1777 var/tmp
printf 'root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n' >etc/passwd
printf 'root:x:0:\nuser:x:1000:\n' >etc/group
printf '127.0.0.1 localhost\n' >etc/hosts
printf 'passwd: files\ngroup: files\n' >etc/nsswitch.conf

for program in lazaret lazaret-{attack,bash,executor,gateway,trace,worker}; do
  # A test build of the executor stands without the programs that have no such build.
  from=$PROGRAMS/$program
  [ -e "$from" ] || from=$OTHERS/$program
  cp "$from" usr/local/bin/
  chmod 755 "usr/local/bin/$program"
  [ -z "$STRIP" ] || "$STRIP" "usr/local/bin/$program"
done

cp -R "$CORPUS" corpus
python3 -B corpus/run.py --only "$PROBES" --build "$COMPILER" --out home/user/results

cp "$SOURCES/guest.sh" init
chmod 755 init
cp "$SOURCES/verdicts.py" guest/
printf 'PROBES=%s\n' "$PROBES" >guest.env
[ -z "$OMITTED" ] || printf 'export LAZARET_ABLATE=%s\n' "$OMITTED" >>guest.env
find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet >"$FILE"
