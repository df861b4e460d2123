#!/bin/sh
# Starts the program of this name in the package for this machine's processor, which npm installs beside this one or below it.
own=$(readlink -f -- "$0") && own=${own%/bin/*}
for programs in "$own"/node_modules/lazaret-sandbox-linux-* "${own%/*}"/lazaret-sandbox-linux-*; do
  [ -x "$programs/bin/${0##*/}" ] && exec "$programs/bin/${0##*/}" "$@"
done
echo "${0##*/}: the package with the programs is not installed: lazaret-sandbox-linux-x64 or -arm64, for glibc" >&2
exit 127
