# Debian's word and RPM's for a removal that is no upgrade.
case "$1" in
remove | 0)
  profile=/etc/apparmor.d/lazaret-executor
  if [ -e "$profile" ]; then
    [ ! -e /sys/kernel/security/apparmor/profiles ] || apparmor_parser --remove "$profile" || true
    rm -f "$profile"
  fi
  ;;
esac
